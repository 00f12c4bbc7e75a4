"""Change the generation: abort, wait for the survivors' positions, decide once, resume.

    begin()    a generation is over: Abort to the survivors, spares take the vacant ranks at once
    quiesced() a survivor has reached its position; the last one triggers
    advance()  the decision (commit.py), which waits until every rank has a worker, then Recover to all

A loss in the middle calls `begin` again: the next generation. Newcomers that are not verified are not survivors: the job does not wait for
them, and they keep their set-up.
"""

from __future__ import annotations

from understudy.core import drill, floating, forming, proofs
from understudy.core.assignment import choose_anywhere, serve
from understudy.core.commands import Abort, Recover
from understudy.core.commit import BOUNDARY, REDO, Decision, InvariantBroken, decide
from understudy.core.events import Quiesced
from understudy.core.membership import fence, give_back, give_rank, open_incident, start_in_place, top_up
from understudy.core.migration import disrupted, outcome
from understudy.core.mismatch import Crashes
from understudy.core.model import LossCause, VotePhase
from understudy.core.places import clearing
from understudy.core.preparation import keep, start_over
from understudy.core.state import JobState, Move, Recovery, Stage, Worker
from understudy.core.transitions import HAS_STATE, Phase, RefusalReason, WorkerState
from understudy.messages import loading, losses, newcomers, recoveries
from understudy.messages.base import CODE, Text

# Reasons why a newcomer that has computed or drawn something else than its rank does not verify.
_OF_THE_SCRIPT = {
    message.code
    for message in (
        *(loading.OTHER_BATCH, loading.OTHER_BATCH_BY_FILES, loading.OTHER_DRAW, loading.OTHER_STREAMS),
        *(newcomers.FRAMEWORKS_DIFFER, newcomers.SAVES, newcomers.REWRITES),
    )
}
MAX_BREAKS = 3  # recoveries at one transaction without a lost worker


def begin(state: JobState, reason: str, lost: list[tuple[int, LossCause]], *, unexplained: bool = False) -> None:
    """End the current generation. The incident is open, and the lost workers are fenced already."""
    survivors = state.members()
    leavers = state.leavers()
    if survivors or all(state.holder(leaver.rank).state is WorkerState.LOST for leaver in leavers):
        survivors += leavers  # they may get their ranks back
    if not survivors and not state.begun:
        forming.restart_all(state, reason)
        return
    if not survivors:
        state.end(1, recoveries.NO_STATE_LEFT(reason=reason))
        return
    carried = state.recovery.lost if state.recovery is not None and not state.recovery.counted else []
    lost = lost + _finished_then_lost(state)
    state.generation, state.store = state.next_generation(), survivors[0].store
    state.set_phase(Phase.QUIESCING)
    state.all_committed, state.broken = False, ""
    state.cancel("communication", "resume")
    recovery = Recovery(
        generation=state.generation,
        planned=False,
        reason=reason,
        store=state.store,
        waiting={worker.name for worker in survivors},
        lost=carried + lost,
        unexplained=unexplained,
    )
    state.recovery = recovery
    newcomers = state.newcomers()
    absent = tuple(sorted({*state.vacant(), *(worker.rank for worker in (*leavers, *newcomers))}))
    for worker in survivors + newcomers:
        message = Abort(worker.name, state.generation, state.store, absent, reason)
        recovery.sent[worker.name] = message
        state.emit(message)
    # Before the ranks are assigned: its spare may take one, and there may now be room where there was none.
    spare = drill.in_set_up(state)
    if lost and spare is not None:
        keep(state, spare)
    drill.call_off(state, reason)
    fill(state)
    state.timer("quiesce", state.timeouts.quiesce)


def _finished_then_lost(state: JobState) -> list[tuple[int, LossCause]]:
    """Return the workers that had finished and were lost then: their ranks are needed again."""
    ranks = sorted(state.finished_then_lost)
    state.finished_then_lost.clear()
    for worker in map(state.holder, ranks):
        worker.finished = False
        if state.incident is not None:
            state.incident.lost(worker.rank, LossCause.EXITED, losses.LOST_AFTER_FINISH(), worker.name)
    return [(rank, LossCause.EXITED) for rank in ranks]


def is_attached(state: JobState, worker: str, generation: int) -> bool:
    """Return whether `worker`, which reports that it is in `generation`, is still training. It was not told to stop, but perhaps to pause
    at a boundary.
    """
    if state.phase is Phase.QUIESCING:
        return state.recovery is not None and state.recovery.planned and worker in state.recovery.waiting
    return state.phase in (Phase.TRAINING, Phase.RESUMING) and generation == state.generation


def fill(state: JobState) -> None:
    """Assign vacant ranks to warm spares. If there are too few, wait for one that is warming, or for a claimed node."""
    serve(state, state.vacant(), lambda rank, spare: _take(state, rank, spare))
    vacant = state.vacant()
    if not vacant:
        state.cancel("hold")
        return
    start_over(state, vacant)
    top_up(state)
    if not state.idle(WorkerState.STARTING) and not any(clearing(state, node) for node in state.nodes.values()):
        start_in_place(state, vacant)
    floating.ask(state)
    if _may_come(state) and "hold" not in state.timers:
        state.report(recoveries.HOLDS_FOR_SPARE(ranks=_ranks(vacant)))
        state.timer("hold", state.timeouts.hang_first)


def waited(state: JobState) -> None:
    """Assign vacant ranks to warm spares anywhere, or end the job, because the limit of waiting has passed."""
    for rank in state.vacant():
        spare = choose_anywhere(state, rank)
        if spare is None:
            state.end(1, no_spare(state, state.vacant(), waited=state.timeouts.hang_first))
            return
        _take(state, rank, spare)
    advance(state)


def _take(state: JobState, rank: int, spare: Worker) -> None:
    give_rank(state, spare, rank, state.generation, state.store, newcomer=True)
    state.ranks[rank] = spare.name
    state.report(recoveries.TAKES_OVER(spare=spare.name, node=spare.node, rank=rank))
    if state.incident is not None:
        state.incident.assigned(rank, spare.name, state.now)


def _may_come(state: JobState) -> bool:
    """Return whether a spare may come later: it is starting, or will when a place is free again, or on a node that replaces a lost one."""
    own = sum(not node.lost and node.claim < 0 for node in state.nodes.values())
    replaced = state.spec.replaces_nodes and own < state.spec.nodes + state.spec.spare_nodes
    clears = any(clearing(state, node) for node in state.nodes.values())
    return bool(state.idle(WorkerState.STARTING)) or clears or replaced or floating.under_way(state)


def want_more(state: JobState) -> None:
    """Ask for spares again where there may be room now. In an incident this is worth the time only if a rank waits for one."""
    if state.vacant():
        fill(state)
    elif state.incident is None:
        top_up(state)


def quiesced(state: JobState, event: Quiesced) -> None:
    if event.generation > state.generation:
        _ended_by_another(state, event.generation)
    recovery = state.recovery
    if event.generation != state.generation:
        state.ignore(event, RefusalReason.GENERATION)
        return
    if state.phase is not Phase.QUIESCING or recovery is None or event.worker not in recovery.waiting:
        state.ignore(event, RefusalReason.AGAIN)
        return
    recovery.waiting.remove(event.worker)
    recovery.answers[event.worker] = event
    state.workers[event.worker].step = event.step
    state.begun = state.begun or event.position.transaction > 0
    if not recovery.waiting:
        state.cancel("quiesce")
        if state.incident is not None:
            state.incident.measure("abort", state.incident.seen_at, state.now)
        if state.spec.floating and state.vacant():
            fill(state)  # only now it may be known that training had begun, and a node is claimed
        advance(state)


def _ended_by_another(state: JobState, generation: int) -> None:
    """Handle a rank that quiesced for a generation that is not in the journal: an orchestrator was killed before it could write down why.

    The reason may not be reported again, as after a broken connection; so all ranks quiesce.
    """
    reason = recoveries.BEGUN_BY_ANOTHER(generation=generation)
    open_incident(state, state.now, reason).note(reason)
    disrupted(state, set(), reason)
    # Beyond it, because it may have been used for other workers.
    state.highest_announced_generation = max(state.highest_announced_generation, generation)
    begin(state, reason, [])


def advance(state: JobState) -> None:
    """Decide and resume, if every survivor has answered and every rank has a worker."""
    recovery = state.recovery
    if state.phase is not Phase.QUIESCING or recovery is None or recovery.waiting:
        return
    if state.dispute is not None and any(state.workers[name].state in HAS_STATE for name in state.dispute.workers):
        return  # paused (`dispute.py`)
    state.dispute = None  # no rank is left to decide on
    try:
        decision = _decide(state, recovery)
    except InvariantBroken as error:
        state.end(1, recoveries.IMPOSSIBLE_POSITIONS(reason=recovery.reason, error=error))
        return
    if not recovery.counted:
        recovery.counted = True
        _count(state, recovery)
    if state.ended is not None:
        return
    if state.incident is not None:
        if not state.incident.decision:
            state.incident.step = min(answer.step for answer in recovery.answers.values())
        state.incident.transaction = max(0, decision.start)
        state.incident.decision = "start anew" if decision.from_scratch else decision.decision
    if decision.from_scratch:
        forming.restart_all(state, recovery.reason)
        return
    leaving = state.migration.ranks if state.migration is not None else ()
    uncovered = [rank for rank in decision.uncovered if rank not in leaving]
    vacant = state.vacant()
    stuck = bool(uncovered or (vacant and not _may_come(state)))
    if stuck and decision.start == 0 and state.restarts < state.spec.max_restarts:
        forming.restart_all(state, recovery.reason)  # the set-up is done, but still no transaction
        return
    if uncovered:
        state.end(1, _uncovered(recovery, decision, uncovered))
        return
    if vacant:
        if not _may_come(state):
            state.end(1, no_spare(state, vacant))
        return
    _resume(state, recovery, decision)


def no_spare(state: JobState, vacant: list[int], waited: float = 0.0) -> Text:
    """Return the message for spares that did not suffice. `waited`: seconds for one to warm."""
    what: dict[str, object] = {
        "reason": state.recovery.reason if state.recovery is not None else "",
        "step": state.step(),
        "workers": ", ".join(state.describe(state.holder(rank)) for rank in vacant),
        "missing": len(vacant),
        "spares": state.spec.spares + len(vacant),
        "claims": floating.scheduler_report(state),
    }
    return recoveries.WAITED_FOR_SPARE(**what, seconds=waited) if waited else recoveries.NO_SPARE_LEFT(**what)


def _decide(state: JobState, recovery: Recovery) -> Decision:
    migration = state.migration
    absent = {*state.vacant(), *(worker.rank for worker in state.newcomers())}
    if migration is not None:
        absent.update(migration.ranks)
    if migration is None or not state.leavers():
        return _from_answers(state, recovery, absent)
    # A loss while ranks move, and their newcomers are not known to be verified, or are lost. Their old workers are at the
    # boundary; the ranks return to them if no rank can have passed it, and then every state is complete.
    without = _from_answers(state, recovery, absent) if state.members() else None
    state.migration = None
    if without is not None and without.start > migration.boundary:
        for move in migration.moves:
            _moved_on(state, recovery, move)
        fill(state)
        return without
    for move in migration.moves:
        _goes_back(state, recovery, move)
    return _from_answers(state, recovery, absent - set(migration.ranks))


def _moved_on(state: JobState, recovery: Recovery, move: Move) -> None:
    leaver = state.workers[move.leaver]
    state.report(recoveries.MOVED_ON(rank=move.rank, leaver=leaver.name))
    if state.incident is not None:
        state.incident.note(recoveries.MOVED_BEFORE_KNOWN(rank=move.rank, leaver=leaver.name, newcomer=move.newcomer))
    fence(state, leaver, f"rank {move.rank} has moved on")
    del recovery.answers[leaver.name]


def _goes_back(state: JobState, recovery: Recovery, move: Move) -> None:
    leaver, newcomer = state.workers[move.leaver], state.workers[move.newcomer]
    state.set_worker_state(leaver, WorkerState.MEMBER)
    state.ranks[move.rank] = leaver.name
    if newcomer.state is not WorkerState.LOST:
        give_back(state, newcomer, f"rank {move.rank} stays where it was")
    outcome(state, move.rank, leaver.name, recoveries.STAYS(rank=move.rank, worker=leaver.name, reason=recovery.reason))


def _from_answers(state: JobState, recovery: Recovery, absent: set[int]) -> Decision:
    answered = {worker.rank: recovery.answers[worker.name] for worker in state.members()}
    positions = {rank: answer.position for rank, answer in answered.items()}
    return decide(positions, {rank: answer.copies for rank, answer in answered.items()}, absent)


def _count(state: JobState, recovery: Recovery) -> None:
    """End the job if the same rank is lost repeatedly at the same transaction: this is not the hardware's fault."""
    place = min(answer.position.transaction for answer in recovery.answers.values())
    limit = state.spec.max_losses_per_transaction
    where = f"transaction {place}" if place >= 0 else "the setup of the script"
    for rank, cause in recovery.lost:
        if cause in (LossCause.NODE, LossCause.DRAINED):
            continue
        book = state.mismatches if cause is LossCause.DIGEST else state.losses
        times = book[rank, place] = book.get((rank, place), 0) + 1
        if times < limit:
            continue
        unlike = not _OF_THE_SCRIPT.isdisjoint(CODE.findall(recovery.reason))
        unverified = recoveries.UNLIKE_AGAIN if unlike else recoveries.UNVERIFIED_AGAIN
        again = unverified if cause is LossCause.DIGEST else recoveries.LOST_AGAIN
        state.end(1, again(rank=rank, times=times, where=where, step=state.step(), reason=recovery.reason))
    if recovery.unexplained:
        times = state.breaks[place] = state.breaks.get(place, 0) + 1
        if times > MAX_BREAKS:
            state.end(1, recoveries.BREAKS_AGAIN(times=times, transaction=place, reason=recovery.reason))


def _resume(state: JobState, recovery: Recovery, decision: Decision) -> None:
    migration = state.migration if recovery.planned else None
    leavers: tuple[int, ...] = ()
    name = decision.decision
    members = state.members()
    if migration is not None:
        if all(answer.position.stand is VotePhase.IDLE for answer in recovery.answers.values()) and decision.decision == "redo":
            name = BOUNDARY
        for move in migration.moves:
            state.set_worker_state(state.workers[move.leaver], WorkerState.LEAVING)
            state.ranks[move.rank] = move.newcomer
        migration.stage, migration.boundary, leavers = Stage.MOVING, decision.start, migration.ranks
    if state.incident is not None:
        state.incident.decision = name
        state.incident.redone |= name == REDO
    recovery.decision = decision
    state.set_phase(Phase.RESUMING)
    newcomers = state.newcomers()
    state.crashes = Crashes.resumed(
        state.crashes, decision.start, {worker.name: worker.rank for worker in newcomers}, state.spec.world_size - len(newcomers)
    )
    for worker in members + newcomers:
        message = Recover(
            worker=worker.name,
            generation=state.generation,
            start=decision.start,
            decision=name,
            store=state.store,
            newcomers=decision.absent,
            holders=decision.holders,
            leavers=leavers,
            proven=bool(newcomers) and all(proofs.proven(state, rank) >= 0 for rank in decision.absent),
        )
        worker.recovered = state.generation
        recovery.sent[worker.name] = message
        state.emit(message)
    if newcomers:
        state.timer("resume", state.timeouts.hang_first)


def _uncovered(recovery: Recovery, decision: Decision, uncovered: list[int]) -> Text:
    return recoveries.LOST_TOGETHER(reason=recovery.reason, lost=_ranks(list(decision.absent)), uncovered=_ranks(uncovered))


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))

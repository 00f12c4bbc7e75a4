"""Bugs put into the core or into the model on purpose: each must be found, or the search is worth nothing.

A bug replaces one function while it is searched for. `BUGS` says what each breaks, and within which bounds it shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from tests.model import moves, steps
from tests.model.bounds import Bounds
from tests.model.bugs_in_claims import BUGS_IN_CLAIMS, LEFT
from tests.model.messages import says
from tests.model.moves import Moves
from tests.model.planting import Bug, nobody, stays
from tests.model.world import Mode, Shape, Worker, World
from understudy.core import (
    admission,
    assignment,
    commit,
    device_faults,
    drain,
    drill,
    events,
    home,
    loss,
    machine,
    membership,
    migration,
    preparation,
    quiesce,
    resume,
    taints,
    transitions,
    workers,
)
from understudy.core.commands import Drill, KillWorker
from understudy.core.commit import Decision
from understudy.core.model import LossCause, Position, VotePhase
from understudy.core.state import CHECK, DRAIN, JobState
from understudy.core.transitions import Phase, RefusalReason, WorkerState

KILL = Bounds(transactions=1, faults={"kill": 1})
KILLS = Bounds(transactions=1, faults={"kill": 2}, together=2, spares=2)
DEVICES = Bounds(transactions=1, faults={"device": 2}, together=2, spares=2)
HUNG = Bounds(transactions=1, faults={"hung": 1})
TAKEOVER = Bounds(transactions=1, faults={"break": 1, "takeover": 1}, together=2)
CRASH = Bounds(transactions=1, faults={"kill": 1, "crash": 1}, together=2)
MOVE = Bounds(transactions=2, faults={"migrate": 1})
TOGETHER = Bounds(ranks=3, spares=2, transactions=2, faults={"leave shared device": 1, "differs": 1}, together=2)
BREAK = Bounds(transactions=2, faults={"migrate": 1, "break": 1}, together=2)
SETUP = Bounds(transactions=1, faults={"kill": 1}, begin="setup")
RING = Bounds(ranks=3, transactions=2, keepers=1, faults={"kill": 1})
THREE = Bounds(ranks=3, transactions=1, spares=2, faults={"kill": 2}, together=2)
AHEAD = Bounds(transactions=2, spares=2, prepared=2, faults={"kill": 2}, together=2)
DRILL = Bounds(transactions=1, faults={"drill": 1}, replenish=True)
DRILLS = Bounds(transactions=2, faults={"drill": 2}, together=2, replenish=True)
DRILLED_AND_MOVED = Bounds(transactions=1, faults={"drill": 1, "migrate": 1}, together=2, replenish=True)
DRILLED = Bounds(transactions=1, faults={"drill": 1, "kill": 1}, together=2, replenish=True)
RESTARTED = Bounds(transactions=1, faults={"drill": 1, "crash": 1}, together=2, replenish=True)
LEAVE = Bounds(nodes=2, spares=2, transactions=1, faults={"leave": 1, "kill": 1}, together=2, replenish=True)
LATER = Bounds(nodes=2, transactions=1, faults={"leave": 2, "kill": 1}, together=3, replenish=True)
WEARS = Bounds(nodes=2, spares=2, transactions=2, home_after=1.0, faults={"leave": 2, "wears": 2}, together=4, replenish=True)
ALL_PREPARED = Bounds(nodes=2, spares=2, prepared=2, faults={"leave": 1}, replenish=True)
DRAIN_ONE = Bounds(nodes=2, spares=2, transactions=3, faults={"drain": 1}, replenish=True)
HOME = replace(WEARS, transactions=4, faults={"leave": 1, "wears": 1}, together=2)
CHECKED = replace(WEARS, admission=True, faults={"leave": 1, "wears": 1, "checked": 1}, together=3)
TAKEN_AWAY = replace(LEFT, transactions=3, faults={"leave": 1, "ended": 1})
SPLIT = Bounds(transactions=1, nodes=2, spares=2, faults={"cut": 1})


# -- in the core ----------------------------------------------------------------------------------------------------------


def _always_redo(positions: Any, copies: Any, absent: Any) -> Decision:
    decision = commit.decide(positions, copies, absent)
    return replace(decision, start=min(p.transaction for p in positions.values()), decision="redo")


def _always_forward(positions: Any, copies: Any, absent: Any) -> Decision:
    lowest = min(position.transaction for position in positions.values())
    return Decision(lowest + 1, "roll forward", tuple(sorted(absent)), tuple(0 if 0 in positions else min(positions) for _ in absent))


def _copies_not_asked_for(positions: Any, copies: Any, absent: Any) -> Decision:
    """All who are left have voted, so it has passed: forgets that the lost rank may not have."""
    lowest = min(p.transaction for p in positions.values())
    if all(p.stand is VotePhase.VOTED or p.transaction > lowest for p in positions.values()):
        return Decision(lowest + 1, "roll forward", tuple(sorted(absent)), tuple(min(positions) for _ in absent))
    return commit.decide(positions, copies, absent)


def _any_holder(positions: Any, copies: Any, absent: Any) -> Decision:
    """Donor not checked: the first candidate is said to have the copy."""
    decision = commit.decide(positions, copies, absent)
    return replace(decision, holders=tuple(max(positions) for _ in decision.absent))


def _stale_answer(state: JobState, event: events.Quiesced) -> None:
    """A position of a generation that is over counts."""
    quiesced(state, replace(event, generation=state.generation))


def _everything(state: JobState) -> list[Any]:
    """Ranks that were to be left there are given up as well."""
    for node in state.nodes.values():
        if node.drain is not None:
            node.taints[DRAIN] = replace(node.drain, lose=True)
    return overdue(state)


def _any_check(state: JobState, event: events.NodeChecked) -> Any:
    """Whether it was passed is not asked."""
    node = state.nodes[event.node]
    return node if CHECK in node.taints else None


overdue = drain.overdue


def _at_once(state: JobState) -> None:
    """Whatever is under way."""
    for node in state.nodes.values():
        if any(taint.leave for taint in node.taints.values()) and state.migration is None:
            for rank in [rank for rank in state.ranks if state.holder(rank).node == node.name]:
                with mock.patch.object(JobState, "unsettled", lambda self: ""):
                    migration.asked(state, events.MigrationAsked(rank, "it is about to fail"))
                return


quiesced = quiesce.quiesced


def _early(state: JobState, event: events.Quiesced) -> None:
    """The first answer is enough."""
    quiesced(state, event)
    if state.phase is Phase.QUIESCING and state.recovery is not None and state.recovery.answers:
        state.recovery.waiting.clear()
        quiesce.advance(state)


def _unfenced(state: JobState, worker: Any, reason: str) -> None:
    """The old worker is not ended."""
    state.set_worker_state(worker, WorkerState.LOST)


def _fence_forgotten(state: JobState, event: events.WorkerStarted) -> None:
    """An agent comes back with a worker that is lost by now, and it is let live."""
    worker_started(state, event)
    state.out = [command for command in state.out if not isinstance(command, KillWorker)]


worker_started = workers.worker_started


def _fault_of_the_machine(state: JobState, event: events.ScriptFailed) -> None:
    """A script that raises is a loss like any other: a spare runs into the same bug."""
    lost = events.WorkerLost(event.worker, LossCause.EXITED, event.summary, 0.0)
    loss.worker_lost(state, lost)


def _trusted_without_device(state: JobState, event: events.DeviceFailed) -> None:
    """A rank whose device has failed stays, and may give its state to others."""


def _burns_spares(state: JobState, here: Any, **_: Any) -> list[Any]:
    """The script's own error is taken for one of each device that it meets."""
    return []


def _unheard_of(state: JobState, generation: int) -> None:
    """A generation that another orchestrator has begun, and could not write down any more, is begun again."""


def _stale_commit(state: JobState, event: events.Committed) -> None:
    """A commit of a generation that is over counts."""
    committed(state, replace(event, generation=state.generation))


committed = resume.committed


def _nothing_repeated(state: JobState, node: Any) -> None:
    """Commands that an orchestrator sent before it was killed are not sent again."""


def _words_of_the_dead(kind: Any, speaker: WorkerState | None, phase: Phase) -> RefusalReason | None:
    """A newcomer that is fenced can still say that it is verified."""
    return None if kind is events.Verified and speaker is not None else refusal(kind, speaker, phase)


refusal = transitions.refusal


def _nobody_released(state: JobState) -> None:
    """The end barrier never opens."""


def _old_generation(state: JobState) -> int:
    """A second loss goes on in the generation of the first."""
    state.highest_announced_generation = max(state.highest_announced_generation, 1)
    return state.highest_announced_generation


def _same_spare(state: JobState, rank: int) -> Any:
    """A spare that has a rank is given another one."""
    found = [w for w in state.workers.values() if w.spare and w.state in (WorkerState.WARM, WorkerState.NEWCOMER)]
    return found[0] if found else None


def _any_spare(state: JobState, rank: int, taken: Any = ()) -> Any:
    """A spare is taken without a look at which rank it is prepared for."""
    return next(iter(state.idle(WorkerState.WARM)[::-1]), None)


def _moves_unasked(state: JobState, event: events.NewcomerReady) -> None:
    """The newcomer takes the rank without a boundary."""
    if state.migration is not None:
        (move,) = state.migration.moves
        leaver, newcomer = state.workers[move.leaver], state.workers[move.newcomer]
        state.set_worker_state(newcomer, WorkerState.MEMBER)
        state.ranks[move.rank] = newcomer.name
        membership.fence(state, leaver, "moved")
        state.migration = None


def _one_goes_back(state: JobState, recovery: Any, move: Any) -> None:
    """Of several ranks that move together, the first is given back after a loss, and the others go to newcomers with nothing."""
    if state.leavers() or move.rank == 0:
        goes_back(state, recovery, move)


goes_back = quiesce._goes_back


def _not_called_off(state: JobState, lost: set[str], why: str) -> None:
    """A connection breaks while a migration prepares, and the migration goes on in a generation that is over."""
    if lost:
        disrupted(state, lost, why)


disrupted = migration.disrupted


def _back_at_once(state: JobState, lost: set[str], why: str) -> None:
    """While a rank moves its newcomer is lost, and it is not checked whether others have gone on with that."""
    leaver = next(iter(state.leavers()), None)
    if state.migration is None or leaver is None or leaver.name in lost or state.migration.moves[0].newcomer not in lost:
        disrupted(state, lost, why)
        return
    state.set_worker_state(leaver, WorkerState.MEMBER)
    state.ranks[leaver.rank] = leaver.name
    state.migration = None


def _counts_drilled(state: JobState) -> None:
    """The spare of a drill counts as one of those that its node wants."""
    for node in state.nodes.values():
        there = node.idle(WorkerState.STARTING, WorkerState.WARM, WorkerState.DRILLING)
        for _ in range(node.spares - len([worker for worker in there if worker.spare])):
            membership.start_worker(state, node, spare=True)


def _takes_drilled(state: JobState, rank: int, taken: Any = ()) -> Any:
    """The spare of a drill is taken for a warm one."""
    drilled = [worker for worker in state.workers.values() if worker.state is WorkerState.DRILLING]
    return next(iter(drilled), None) or choose_spare(state, rank)


choose_spare = assignment.choose_spare


def _goes_on(state: JobState, why: str) -> None:
    """A loss does not call a drill off; the end of the job does."""
    if state.phase is Phase.TRAINING:
        call_off(state, why)


call_off = drill.call_off


def _any_stage(state: JobState) -> Any:
    """A spare that was told to start is kept like one in its set-up."""
    spare = state.workers[state.drill.worker] if state.drill is not None else None
    return spare if spare is not None and spare.state is WorkerState.DRILLING else None


def _kept_for_nothing(state: JobState, spare: Any) -> None:
    """The spare is warm again, and it is forgotten for which rank it has run the set-up."""
    keep(state, spare)
    spare.prepare = None


keep = preparation.keep


def _word_of_any_drill(state: JobState, event: events.DrillBroken) -> None:
    """A rank's message about a drill that is over ends the next one."""
    broken(state, replace(event, drill=state.drill.number) if state.drill is not None else event)


broken = drill.broken


def _end_waits(state: JobState) -> None:
    """The job ends when its drill has."""
    if state.drill is None:
        maybe_done(state)


maybe_done = resume.maybe_done


def _timerstays(state: JobState, *names: str) -> None:
    """The timer of a drill that is over goes on."""
    cancel(state, *(name for name in names if name != "drill"))


cancel = JobState.cancel


# -- in the service -------------------------------------------------------------------------------------------------------


def _drill_at_once(command: Any) -> bool:
    """Drill is sent before what led to it is written."""
    return is_decision(command) and not isinstance(command, Drill)


is_decision = moves.is_decision


# -- in the workers -------------------------------------------------------------------------------------------------------


def _vote_skipped(world_: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    """A rank applies without waiting for the others."""
    found = acts_of(world_, shape, w)
    if w.mode is Mode.VOTING:
        found.append(("passes alone", steps.passes(world_, w)))
    return found


acts_of = steps.acts_of


def _counts_before_its_copies(world_: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    """A vote counts before the copies that the rank keeps for others are there."""
    found = acts_of(world_, shape, w)
    if w.mode is Mode.VOTING and not any(what == "agrees" for what, _ in found):
        early = steps.agree(world_, shape, w)
        found.append(("agrees too early", early.put(early.of(w.name)._replace(shelf=w.shelf))))
    return found


def _goes_on_unverified(world_: World, shape: Shape, w: Worker) -> list[tuple[str, World]]:
    """A newcomer is a rank before it has any state."""
    found = acts_of(world_, shape, w)
    if w.mode is Mode.CONNECTED and w.newcomer and w.pending is not None:
        start, generation = w.pending[2], w.pending[1]
        after = w._replace(mode=Mode.IDLE, t=start, generation=generation, pending=None, newcomer=False)
        found.append(("goes on", world_.put(says(after, events.Verified(w.name, generation, 1)))))
    return found


def _position_too_high(w: Worker, generation: int, stand: VotePhase) -> Worker:
    """A rank that has not voted says that it has."""
    after = quiesce_of(w, generation, stand)
    *before, answer = after.up
    assert isinstance(answer, events.Quiesced)
    lie = replace(answer, position=Position(answer.position.transaction, VotePhase.VOTED if stand is VotePhase.RUNNING else stand))
    return after._replace(up=(*before, lie), said=(*after.said[:-1], lie))


quiesce_of = steps.quiesce


def _published_once(world_: World, w: Worker) -> World:
    """A record that came while its holder was called is never published."""
    return world_.put(w)


def _publishes_nothing(worker: Worker, message: Any) -> frozenset[Any]:
    """No record of a set-up is ever published."""
    return frozenset()


BUGS = [
    Bug("a transaction whose vote has passed is redone", quiesce, "decide", _always_redo, KILL),
    Bug("a transaction that nobody has voted for is rolled forward", quiesce, "decide", _always_forward, KILL),
    Bug("the lost rank's vote is taken for granted", quiesce, "decide", _copies_not_asked_for, KILL),
    Bug(
        "the holder of a copy is not checked",
        quiesce,
        "decide",
        _any_holder,
        Bounds(ranks=3, transactions=2, keepers=1, faults={"kill": 1}),
    ),
    Bug("a position of an old generation counts", quiesce, "quiesced", _stale_answer, KILLS),
    Bug("not all survivors are waited for", quiesce, "quiesced", _early, Bounds(ranks=3, transactions=1, faults={"kill": 1})),
    Bug("a lost worker is not ended", loss, "fence", _unfenced, HUNG),
    Bug("a fenced worker that comes back is let live", workers, "worker_started", _fence_forgotten, SPLIT),
    Bug("a commit of an old generation counts", resume, "committed", _stale_commit, HUNG),
    Bug("a decision is sent before it is written", Moves, "writes_ahead", False, CRASH, far=True),
    Bug("nothing is repeated after a restart", workers, "_repeat", _nothing_repeated, CRASH),
    Bug("a fenced newcomer's word counts", machine, "refusal", _words_of_the_dead, KILLS),
    Bug("a script that raises is a loss", machine, "_script_failed", _fault_of_the_machine, Bounds(transactions=1, faults={"fails": 1})),
    Bug("a rank without a device stays", device_faults, "device_failed", _trusted_without_device, DEVICES),
    Bug("the script's error burns spares", device_faults, "_same_of_script", _burns_spares, DEVICES),
    Bug("what the leader before has begun is not ended", quiesce, "_ended_by_another", _unheard_of, TAKEOVER, far=True),
    Bug("the end barrier never opens", resume, "maybe_done", _nobody_released, Bounds(transactions=1)),
    Bug("a second loss does not begin a generation", JobState, "next_generation", _old_generation, KILLS),
    Bug("a spare takes two ranks", assignment, "choose_spare", _same_spare, THREE),
    Bug("a spare that is prepared for one rank takes another", assignment, "choose_spare", _any_spare, AHEAD),
    Bug("a migration does not wait for a boundary", migration, "newcomer_ready", _moves_unasked, MOVE),
    Bug("one of several leavers gets its rank back", quiesce, "_goes_back", _one_goes_back, TOGETHER),
    Bug("a broken connection does not call a migration off", loss, "disrupted", _not_called_off, BREAK),
    Bug("no record of a set-up is published", steps, "records", _publishes_nothing, KILL),
    Bug("a record that comes late is not published", steps, "_rests", _published_once, SETUP),
    Bug("the vote is skipped", steps, "acts_of", _vote_skipped, KILL),
    Bug("copies are not renewed after a recovery", steps, "_renewed", lambda shape, w: set(), replace(KILL, transactions=2)),
    Bug("a vote counts before its copies are there", steps, "acts_of", _counts_before_its_copies, KILL),
    Bug("a newcomer goes on unverified", steps, "acts_of", _goes_on_unverified, KILL),
    Bug("a rank says that it has voted, and has not", steps, "quiesce", _position_too_high, RING),
    Bug("a drilled spare counts as a warm one", drill, "top_up", _counts_drilled, DRILL),
    Bug("a drilled spare takes a rank", migration, "choose_spare", _takes_drilled, DRILLED_AND_MOVED),
    Bug("a loss does not call a drill off", drill, "call_off", _goes_on, DRILLED),
    Bug("a spare that was told to begin is kept as prepared", drill, "in_set_up", _any_stage, DRILLED),
    Bug("a spare that is kept can take any rank", quiesce, "keep", _kept_for_nothing, DRILLED),
    Bug("the end of the job waits for a drill", resume, "maybe_done", _end_waits, DRILL),
    Bug("a word about an old drill ends the new one", drill, "broken", _word_of_any_drill, DRILLS),
    Bug("the timer of a drill that is over goes on", JobState, "cancel", _timerstays, DRILL),
    Bug("nobody leaves a tainted node behind a recovery", resume, "leave", stays, LEAVE),
    Bug("nobody leaves a tainted node for a spare that comes later", workers, "leave", stays, LATER),
    Bug("a rank moves in the middle of a recovery", taints, "leave", _at_once, LEAVE),
    Bug("nobody leaves a tainted node when another is trusted again", taints, "leave", stays, WEARS),
    Bug("a rank stays where all spares are prepared for others", preparation, "make_room", nobody, ALL_PREPARED),
    Bug("spares stay on a drained node", drain, "_end_spares", nobody, DRAIN_ONE),
    Bug("what is late is not given up", drain, "overdue", nobody, DRAIN_ONE),
    Bug("what is late is given up, and was to be left", drain, "overdue", _everything, DRAIN_ONE),
    Bug("a node is trusted without a check", admission, "begin", nobody, CHECKED, far=True),
    Bug("a node is trusted although its check has failed", admission, "passed", _any_check, CHECKED, far=True),
    Bug("ranks go home to a node that is tainted again", home, "doubted", nobody, WEARS),
    Bug("no rank goes home for a spare that comes later", home, "go", stays, HOME, far=True),
    *BUGS_IN_CLAIMS,
    Bug("a lost newcomer's rank goes back at once", loss, "disrupted", _back_at_once, TAKEN_AWAY, far=True),
    Bug("a spare is told to begin before that is written", moves, "is_decision", _drill_at_once, RESTARTED, far=True),
]

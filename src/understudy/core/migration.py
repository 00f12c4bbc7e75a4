"""Planned migration: move healthy ranks to spares, all at the same step boundary.

    asked           Publish to all, Assign(planned) to each spare: it sets up while training goes on
    newcomer_ready  the last one: Pause to all, who agree on a boundary and quiesce there
    (quiesce.py)    Recover with the leavers as donors
    (resume.py)     a newcomer is verified: the old worker is released

`disrupted` handles a loss during a migration. If a newcomer is lost while it sets up, its rank stays where it is, and the others move
without it. If a leaver is lost, its rank goes to the newcomer that has set up for it. The other moves are then called off, as by any other
loss. While ranks move, a newcomer may have been verified, and may have voted, before this machine knows of it. So if anything is lost then,
the positions of the others show whether ranks are given back to their leavers (`quiesce._decide`). For that, at least one rank stays where
it is (`most`).

Known limits. A leaver is released when its newcomer is verified. If that newcomer is lost before the ranks have sent their copies again,
and the ranks that kept the leaver's copy have moved as well, the leaver's rank-local state is lost and the job ends (`LOST_TOGETHER`).

If only leavers are left, no position shows this. If the newcomers are lost as well, the job goes on with the state of the leavers, from the
boundary; steps that the newcomers and the other ranks have done since are done again, and are in no rank's state. If the newcomers are not
lost, the job ends.
"""

from __future__ import annotations

from understudy.core import destination, drill
from understudy.core.assignment import choose_spare
from understudy.core.commands import Pause, Publish
from understudy.core.events import MigrationAsked, NewcomerReady
from understudy.core.membership import give_back, give_rank, open_incident, top_up
from understudy.core.model import LossCause
from understudy.core.state import JobState, Migration, Move, Recovery, Stage, Worker
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import moves


def refusal(state: JobState, rank: int, to: str = "", device: str = "") -> str:
    """Return why `rank` cannot migrate now, to that node and device if they are given; empty if it can."""
    if rank not in range(state.spec.world_size):
        return moves.NO_SUCH_RANK(rank=rank, last=state.spec.world_size - 1)
    if why_not := state.unsettled():
        return why_not
    if to:
        place = destination.find(state, rank, to, device)
        return "" if isinstance(place, destination.Place) else place
    if choose_spare(state, rank) is None:
        warming = bool(state.idle(WorkerState.STARTING))
        if not warming and any(spare.prepare is not None for spare in state.idle(WorkerState.WARM)):
            return moves.ALL_PREPARED()
        return moves.NO_SPARE_WARM() if warming else moves.NO_SPARE()
    return ""


def asked(state: JobState, event: MigrationAsked) -> None:
    why_not = refusal(state, event.rank, event.to, event.device)
    if why_not:
        state.report(moves.REFUSED(rank=event.rank, why=why_not))
        return
    if event.to:
        place = destination.find(state, event.rank, event.to, event.device)
        assert isinstance(place, destination.Place), "else it is refused"
        begin(state, [move_of(state, event.rank, place.spare, event.reason, place.local_rank)])
        return
    spare = choose_spare(state, event.rank)
    assert spare is not None, "else it is refused"
    begin(state, [move_of(state, event.rank, spare, event.reason)])


def move_of(state: JobState, rank: int, spare: Worker, reason: str, local_rank: int = -1) -> Move:
    """Return the move of this rank to `spare`, which is warm."""
    return Move(rank, state.holder(rank).name, spare.name, reason, local_rank)


def most(state: JobState) -> int:
    """Return how many ranks may move at once."""
    return max(1, state.spec.world_size - 1)


def begin(state: JobState, every: list[Move]) -> None:
    """In plain training, start to move these ranks."""
    ranks = tuple(move.rank for move in every)
    drill.call_off(state, f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} {'migrate' if ranks[1:] else 'migrates'}")
    generation = state.next_generation()
    state.migration = Migration(generation, every)
    stay = [worker for worker in state.members() if worker.rank not in ranks]
    store = stay[0].store if stay else state.workers[every[0].newcomer].store
    for move in every:
        state.report(moves.MIGRATES(rank=move.rank, leaver=move.leaver, newcomer=move.newcomer))
    for worker in state.members():
        state.emit(Publish(worker.name, generation, store, ranks))
    for move in every:
        newcomer = state.workers[move.newcomer]
        give_rank(state, newcomer, move.rank, generation, store, newcomer=True, planned=True, local=move.local_rank)
    state.timer("migration", state.timeouts.hang_first)


def newcomer_ready(state: JobState, event: NewcomerReady) -> None:
    migration = state.migration
    move = migration.to(event.worker) if migration is not None else None
    if migration is None or move is None or migration.stage is not Stage.PREPARING:
        state.ignore(event, RefusalReason.OVER)
    elif event.generation != migration.generation:
        state.ignore(event, RefusalReason.GENERATION)
    elif state.broken:  # a broken rank reaches no boundary: a recovery is about to begin, and calls the migration off
        state.ignore(event, RefusalReason.PHASE)
    elif move.ready:
        state.ignore(event, RefusalReason.AGAIN)
    else:
        move.ready = True
        _pause(state, migration)


def _pause(state: JobState, migration: Migration) -> None:
    """Pause the job if all newcomers have set up."""
    if state.broken or not all(move.ready for move in migration.moves):
        return
    state.cancel("migration")
    if any(worker.finished for worker in state.members()):
        state.migration = None
        for move in migration.moves:
            give_back(state, state.workers[move.newcomer], "the job is about to finish")
            state.report(moves.NO_LONGER(rank=move.rank))
        return
    incident = open_incident(state, state.now, migration.reason or moves.ASKED(), planned=True)
    for move in migration.moves:
        incident.lost(move.rank, LossCause.MIGRATED, move.reason, move.leaver)
        incident.assigned(move.rank, move.newcomer, state.now)
        for phase in move.measured:
            incident.measure(phase.phase, phase.started, phase.started + phase.seconds)
    migration.stage = Stage.PAUSING
    first = state.workers[migration.moves[0].newcomer].assign
    assert first is not None, "a newcomer has a rank"
    state.generation, state.store = migration.generation, first.store
    state.set_phase(Phase.QUIESCING)
    state.all_committed = False
    members = state.members()
    recovery = Recovery(
        generation=state.generation,
        planned=True,
        reason=incident.reason,
        store=state.store,
        waiting={worker.name for worker in members},
        lost=[],
    )
    state.recovery = recovery
    for worker in members:
        message = Pause(worker.name, state.generation, state.store, migration.ranks)
        recovery.sent[worker.name] = message
        state.emit(message)
    state.timer("quiesce", state.timeouts.quiesce)


def disrupted(state: JobState, lost: set[str], why: str) -> None:
    """Adapt a migration under way: workers in `lost` are gone (and fenced)."""
    migration = state.migration
    if migration is None:
        return
    if migration.stage is Stage.PREPARING and lost and all(migration.to(name) for name in lost):
        over = [move for move in migration.moves if move.newcomer in lost]
    elif migration.stage is Stage.MOVING:  # for the others, the survivors' positions show which worker keeps the rank
        over = [move for move in migration.moves if move.leaver in lost]
    else:
        over = migration.moves
    migration.moves = [move for move in migration.moves if move not in over]
    if not migration.moves:
        state.migration = None
        state.cancel("migration")
    for move in over:
        _end(state, move, lost, why)
    if state.incident is None and not any(move.leaver in lost for move in over):
        top_up(state)
    if migration.moves and migration.stage is Stage.PREPARING:
        _pause(state, migration)
        if state.migration is migration and migration.stage is Stage.PREPARING and "migration" not in state.timers:
            state.timer("migration", state.timeouts.hang_first)


def _end(state: JobState, move: Move, lost: set[str], why: str) -> None:
    """Decide which worker keeps the rank when one of the two is lost or the move is called off."""
    newcomer, rank = state.workers[move.newcomer], move.rank
    there = newcomer.state is not WorkerState.LOST
    if move.leaver not in lost:
        if there:
            give_back(state, newcomer, f"the migration of rank {rank} is called off: {why}")
        outcome(state, rank, move.leaver, moves.CALLED_OFF(rank=rank, why=why))
    elif there and rank in state.finished_then_lost:  # it had finished: no rank waits for it
        give_back(state, newcomer, "the job is about to finish")
    elif there:
        state.ranks[rank] = newcomer.name
        outcome(state, rank, newcomer.name, moves.MIGRATING_ALREADY(rank=rank, newcomer=newcomer.name))


def outcome(state: JobState, rank: int, holder: str, note: str) -> None:
    state.report(note)
    if state.incident is not None:
        state.incident.assigned(rank, holder, state.now)
        state.incident.note(note)

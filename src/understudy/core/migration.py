"""A planned migration: a healthy rank moves to a spare at a step boundary.

    asked           Publish to all, Assign(planned) to a spare: it sets up while training goes on
    newcomer_ready  Pause to all: they agree on a boundary and quiesce there
    (quiesce.py)    Recover with the leaver as a donor
    (resume.py)     the newcomer is verified: the old worker is released

`disrupted` is what a loss in the middle makes of it: the lost leaver's rank goes to the newcomer, which has set up
for it; a lost newcomer's rank stays with the leaver; the loss of another rank calls the migration off. While the rank
moves the newcomer may have been verified, and may have voted, before anybody heard of it here. So whoever is lost then,
unless it is the leaver, the others' positions tell whether the rank is given back to the leaver (`quiesce._decide`).

Known limit: where nobody but the leaver is left, no position tells. If the newcomer is lost as well, the job goes on
with what the leaver has, from the boundary; what the newcomer and the other ranks have done behind that is done again,
and is in nobody's state. If the newcomer is not lost, the job ends.
"""

from __future__ import annotations

from understudy.core import destination, drill
from understudy.core.assignment import choose_spare
from understudy.core.commands import Pause, Publish
from understudy.core.events import MigrationAsked, NewcomerReady
from understudy.core.membership import give_back, give_rank, open_incident, top_up
from understudy.core.model import LossCause
from understudy.core.state import JobState, Migration, Recovery, Stage, Worker
from understudy.core.transitions import Phase, Why, WorkerState
from understudy.messages import moves


def refusal(state: JobState, rank: int, to: str = "", device: str = "") -> str:
    """Why `rank` cannot migrate now, to that node and device if they are given; empty if it can."""
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
        state.tell(moves.REFUSED(rank=event.rank, why=why_not))
        return
    if event.to:
        place = destination.find(state, event.rank, event.to, event.device)
        assert isinstance(place, destination.Place), "else it is refused"
        move(state, event, place.spare, place.local_rank)
        return
    spare = choose_spare(state, event.rank)
    assert spare is not None, "else it is refused"
    move(state, event, spare)


def move(state: JobState, event: MigrationAsked, spare: Worker, local: int = -1) -> None:
    """In plain training: `spare`, which is warm, sets up for the rank, with this local rank; -1: the usual one."""
    drill.call_off(state, f"rank {event.rank} migrates")
    leaver = state.holder(event.rank)
    donors = [worker for worker in state.members() if worker is not leaver]
    store = donors[0].store if donors else spare.store
    generation = state.next_generation()
    state.migration = Migration(event.rank, leaver.name, spare.name, generation, event.reason)
    state.tell(moves.MIGRATES(rank=event.rank, leaver=leaver.name, newcomer=spare.name))
    for worker in state.members():
        state.emit(Publish(worker.name, generation, store, (event.rank,)))
    give_rank(state, spare, event.rank, generation, store, newcomer=True, planned=True, local=local)
    state.timer("migration", state.timeouts.hang_first)


def newcomer_ready(state: JobState, event: NewcomerReady) -> None:
    migration = state.migration
    if migration is None or migration.stage is not Stage.PREPARING or event.worker != migration.newcomer:
        state.refuse(event, Why.OVER)
        return
    newcomer = state.workers[migration.newcomer]
    if event.generation != migration.generation or newcomer.assign is None:
        state.refuse(event, Why.GENERATION)
        return
    if state.broken:  # a rank that waits to hear why comes to no boundary: a recovery is about to begin, and calls the migration off
        state.refuse(event, Why.PHASE)
        return
    state.cancel("migration")
    if any(worker.finished for worker in state.members()):
        give_back(state, newcomer, "the job is about to finish")
        state.migration = None
        state.tell(moves.NO_LONGER(rank=migration.rank))
        return
    incident = open_incident(state, state.now, migration.reason or moves.ASKED(), planned=True)
    incident.lost(migration.rank, LossCause.MIGRATED, migration.reason, migration.leaver)
    incident.assigned(migration.rank, migration.newcomer, state.now)
    for phase in migration.measured:
        incident.measure(phase.phase, phase.started, phase.started + phase.seconds)
    migration.stage = Stage.PAUSING
    state.generation, state.store = migration.generation, newcomer.assign.store
    state.enter(Phase.QUIESCING)
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
        message = Pause(worker.name, state.generation, state.store, (migration.rank,))
        recovery.sent[worker.name] = message
        state.emit(message)
    state.timer("quiesce", state.timeouts.quiesce)


def disrupted(state: JobState, lost: set[str], why: str) -> None:
    """Workers in `lost` are gone (and fenced) while a migration is under way."""
    migration = state.migration
    if migration is None:
        return
    leaver, newcomer = state.workers[migration.leaver], state.workers[migration.newcomer]
    rank = migration.rank
    state.cancel("migration")
    if migration.stage is Stage.MOVING and leaver.name not in lost:
        return  # the survivors' positions tell which of the two keeps the rank
    state.migration = None
    there = newcomer.state is not WorkerState.LOST
    if leaver.name in lost:
        if there and rank in state.finished_then_lost:  # it had finished: nobody waits for the rank
            give_back(state, newcomer, "the job is about to finish")
        elif there:
            state.ranks[rank] = newcomer.name
            outcome(state, rank, newcomer.name, moves.MIGRATING_ALREADY(rank=rank, newcomer=newcomer.name))
        return
    if there:
        give_back(state, newcomer, f"the migration of rank {rank} is called off: {why}")
    outcome(state, rank, leaver.name, moves.CALLED_OFF(rank=rank, why=why))
    if state.incident is None:
        top_up(state)


def outcome(state: JobState, rank: int, holder: str, note: str) -> None:
    state.tell(note)
    if state.incident is not None:
        state.incident.assigned(rank, holder, state.now)
        state.incident.note(note)

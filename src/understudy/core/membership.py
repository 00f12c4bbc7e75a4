"""Workers come and go: starting, fencing, giving a rank, keeping the spares topped up, opening the incident.

These are the small moves that forming, loss, quiescing and migration are made of. A fenced worker (`LOST`) never comes
back: its name is not used again, and nothing that it says counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.core import places
from understudy.core.assignment import environment
from understudy.core.commands import Assign, KillWorker, StartWorker
from understudy.core.incident import OpenIncident
from understudy.core.state import JobState, Node, Worker
from understudy.core.topology import domain_of, shown, splits
from understudy.core.transitions import WorkerState
from understudy.messages import recoveries, topology


def start_worker(state: JobState, node: Node, spare: bool) -> None:
    name = f"w{state.started}"
    state.started += 1
    state.enlist(Worker(name, node.name, spare))
    state.emit(StartWorker(node.name, name, spare))


def fence(state: JobState, worker: Worker, reason: str) -> None:
    """Whatever it still does, it is not part of the job. Its process ends, with everything that it started."""
    state.become(worker, WorkerState.LOST)
    state.emit(KillWorker(worker.name, reason))


def give_rank(
    state: JobState, worker: Worker, rank: int, generation: int, store: str, *, newcomer: bool, planned: bool = False, local: int = -1
) -> None:
    """`worker` sets up as `rank`, with this local rank; -1: the usual one. The caller decides when it becomes the rank's holder."""
    if newcomer and splits(state, rank, state.nodes[worker.node]):
        where = {"node": worker.node, "domain": domain_of(state, rank), "groups": shown(state, rank)}
        warning = topology.GROUP_SPLIT(rank=rank, **where)
        state.tell(warning)
        if state.incident is not None:
            state.incident.note(warning)
    if local < 0:
        local = places.local_rank(state, worker, rank) if newcomer else rank % state.spec.workers_per_node
    worker.rank, worker.local_rank = rank, local
    state.become(worker, WorkerState.NEWCOMER if newcomer else WorkerState.MEMBER)
    node = state.nodes[worker.node]
    if newcomer and not state.spec.replenish:
        node.spares = max(0, node.spares - 1)
    variables = environment(state, rank, local, store)
    worker.assign = Assign(worker.name, generation, rank, newcomer, planned, store, variables)
    state.emit(worker.assign)


def give_back(state: JobState, worker: Worker, reason: str) -> None:
    """End a newcomer whose rank is not needed after all. It ran the script, so a fresh spare replaces it."""
    fence(state, worker, reason)
    if not state.spec.replenish:
        state.nodes[worker.node].spares += 1


def top_up(state: JobState) -> None:
    """Start the spares that are missing. Not called in the middle of an incident unless a rank waits for one: warming
    takes processor time from the recovery.
    """
    for _, node in sorted(state.places.items()):
        if node.spares and state.trusted(node):
            for _ in range(places.missing_spares(state, node)):
                start_worker(state, node, spare=True)


def start_in_place(state: JobState, vacant: Sequence[int]) -> None:
    """Start spares for these ranks on nodes that have ranks at the start and miss some by now. For when no other spare can come: those that
    have taken ranks are replaced where they were, but not where all places have ranks.
    """
    if not (state.spec.replenish and state.spec.spares):
        return
    first = [rank // state.spec.workers_per_node for rank in vacant]  # those that the ranks were started on, then the others
    needed = len(vacant)
    for number in dict.fromkeys([*first, *range(state.spec.nodes)]):
        node = state.places[number]
        if not state.trusted(node) or node.refused or node.failed_starts > state.spec.max_restarts:
            continue
        empty = state.spec.workers_per_node - len(node.workers)
        for _ in range(min(needed, empty)):
            start_worker(state, node, spare=True)
            needed -= 1


def open_incident(state: JobState, fault_at: float, reason: str, *, planned: bool = False) -> OpenIncident:
    """The incident under way, or a new one. A loss in the middle of a migration makes it unplanned."""
    if state.incident is None:
        fault_at = min(fault_at, state.now)
        number = len(state.incidents) + 1
        state.incident = OpenIncident(number, planned, fault_at, state.now, reason, step=state.step())
        if not planned:
            state.incident.measure("detect", fault_at, state.now)
    elif not planned and state.incident.planned:
        state.incident.planned = False
        state.incident.note(recoveries.BECAME_RECOVERY(reason=reason))
    return state.incident

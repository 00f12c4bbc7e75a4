"""Start, fence and top up workers, assign ranks, and open incidents.

Forming, losses, quiescing and migrations use these small operations. A fenced worker (`LOST`) never comes back: its name is not reused, and
its events are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """Fence a worker: from now on it is not part of the job. Its process ends, with everything that it started."""
    state.set_worker_state(worker, WorkerState.LOST)
    state.emit(KillWorker(worker.name, reason))


def give_rank(
    state: JobState, worker: Worker, rank: int, generation: int, store: str, *, newcomer: bool, planned: bool = False, local: int = -1
) -> None:
    """Let `worker` set up as `rank`, with this local rank; -1: the usual one. The caller decides when it becomes the rank's holder."""
    if newcomer and splits(state, rank, state.nodes[worker.node]):
        where = {"node": worker.node, "domain": domain_of(state, rank), "groups": shown(state, rank)}
        warning = topology.GROUP_SPLIT(rank=rank, **where)
        state.report(warning)
        if state.incident is not None:
            state.incident.note(warning)
    if local < 0:
        local = places.local_rank(state, worker, rank) if newcomer else rank % state.spec.workers_per_node
        assert local >= 0, "it is chosen by that"
    worker.rank, worker.local_rank = rank, local
    state.set_worker_state(worker, WorkerState.NEWCOMER if newcomer else WorkerState.MEMBER)
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
    """Start the spares that are missing.

    Not called during an incident unless a rank waits for a spare, because warming takes processor time from the recovery. A spare that has
    taken a rank is replaced on its node if there is a place, else where a rank has left one.
    """
    for _, node in sorted(state.places.items()):
        if node.spares and state.trusted(node):
            for _ in range(places.missing_spares(state, node)):
                start_worker(state, node, spare=True)
    own = [state.places[number] for number in range(state.spec.nodes) if number in state.places]
    extra = sum(max(0, len(places.idle_spares(node)) - node.spares) for node in own)
    displaced = sum(places.displaced(state, node) for node in state.nodes.values() if not node.lost and node.drain is None)
    if displaced > extra:
        there = [node for node in own if state.trusted(node) and not node.home_at]  # not where ranks will return (`home.py`)
        _start_where_empty(state, there, displaced - extra)


def start_in_place(state: JobState, vacant: Sequence[int]) -> None:
    """Start spares for these ranks where ranks have left places, if no other spare can come.

    On nodes that are not trusted only if no other has a place.
    """
    spec = state.spec
    if not (spec.bounded_places and spec.replenish and spec.spares):
        return
    first = [rank // spec.workers_per_node for rank in vacant]  # the nodes on which the ranks were started, then the others
    nodes = [state.places[number] for number in dict.fromkeys([*first, *range(spec.nodes)])]
    nodes = [node for node in nodes if not node.lost and node.drain is None]
    for trusted in (True, False):
        if _start_where_empty(state, [node for node in nodes if bool(node.taint) is not trusted], len(vacant)):
            return


def _start_where_empty(state: JobState, nodes: Iterable[Node], count: int) -> int:
    """Start up to `count` spares where no rank is now, on these nodes, all of which had ranks at the start. Return how many."""
    started = 0
    for node in nodes:
        if node.failed_starts <= state.spec.max_restarts:
            there = max(0, len(places.idle_spares(node)) - node.spares)
            for _ in range(min(count - started, len(places.empty_places(state, node)) - there)):
                start_worker(state, node, spare=True)
                started += 1
    return started


def open_incident(state: JobState, fault_at: float, reason: str, *, planned: bool = False) -> OpenIncident:
    """Return the incident under way, or a new one. A loss during a migration makes it unplanned."""
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

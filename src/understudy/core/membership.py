"""Workers come and go: starting, fencing, giving a rank, keeping the spares topped up, opening the incident.

These are the small moves that forming, loss, quiescing and migration are made of. A fenced worker (`LOST`) never comes
back: its name is not used again, and nothing that it says counts.
"""

from __future__ import annotations

from understudy.core.assignment import environment, local_rank
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
        local = local_rank(state, worker, rank) if newcomer else rank % state.spec.workers_per_node
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
        if not node.spares or not state.trusted(node):
            continue
        idle = [worker for worker in node.idle(WorkerState.STARTING, WorkerState.WARM) if worker.spare]
        missing = node.spares - len(idle)
        if node.claim >= 0:  # each worker there has an accelerator of its own
            missing = min(missing, node.room - len(node.workers))
        for _ in range(missing):
            start_worker(state, node, spare=True)


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

"""The places for workers on a node, and the local rank of a worker.

A *bounded* node has as many places as its agent offered spares when it joined, each with its own accelerator: it was started for
spares only, or is claimed from the scheduler. No more ranks go there: they would find no free device, and their script would fail. A spare
that is in a drill or idle blocks no rank.

The other nodes have ranks from the start, and the user has set the number of additional spares. A rank from another node may get a local
rank there that is not below `LOCAL_WORLD_SIZE`; other spares are preferred (`assignment`, row *place*).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from understudy.core.state import JobState, Node, Worker
from understudy.core.transitions import WorkerState

_TAKEN = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
_IDLE = (WorkerState.STARTING, WorkerState.WARM)


def bounded(state: JobState, node: Node) -> bool:
    """Return whether the node has no more places than its agent offered spares.

    The job's own nodes are unbounded if an earlier version began the job, because replaying its journal must repeat that version's
    decisions.
    """
    return node.claim >= 0 or (state.spec.bounded_places and node.rank >= state.spec.nodes)


def open_places(node: Node) -> list[int]:
    """Return the local ranks that no rank has on this bounded node, and whose device is trusted.

    A worker that was released keeps its place until it has ended.
    """
    return _free(node, node.room)


def empty_places(state: JobState, node: Node) -> list[int]:
    """Return the local ranks that were started on this node, have no worker now, and whose device is trusted."""
    return _free(node, state.spec.workers_per_node)


def _free(node: Node, size: int) -> list[int]:
    taken = {worker.local_rank for worker in node.workers.values() if worker.state in (*_TAKEN, WorkerState.RELEASED)}
    return sorted(set(range(size)) - taken - node.tainted_places())


def idle_spares(node: Node) -> list[Worker]:
    """Return the spares on the node that are starting or warm."""
    return [worker for worker in node.idle(*_IDLE) if worker.spare]


def missing_spares(state: JobState, node: Node) -> int:
    """Return how many spares are to be started on the node."""
    wanted = min(node.spares, len(open_places(node))) if bounded(state, node) else node.spares
    return max(0, wanted - len(idle_spares(node)))


def displaced(state: JobState, node: Node) -> int:
    """Return how many spares of this node must be replaced elsewhere: they have taken ranks, and the node has no place for others."""
    if node.claim >= 0 or not bounded(state, node):
        return 0
    return max(0, node.spares - len(open_places(node)) - len(node.idle(WorkerState.RELEASED)))


def room(state: JobState, node: Node) -> int:
    """Return how many ranks could come to the node in total, including those that wait for the next spare to start."""
    idle = len(node.idle(*_IDLE, WorkerState.DRILLING))
    if not bounded(state, node):
        return node.spares if state.spec.replenish else idle
    return len(open_places(node)) if state.spec.replenish and node.spares else min(idle, len(open_places(node)))


def clearing(state: JobState, node: Node) -> int:
    """Return how many spares will start on the node when released workers have ended."""
    if node.lost or not bounded(state, node):
        return 0
    return max(0, min(len(node.idle(WorkerState.RELEASED)), node.spares - len(node.idle(*_IDLE))))


def with_places(state: JobState, idle: Iterable[Worker]) -> list[Worker]:
    """Return the spares for which there are places, in the given order. Warm ones get places before starting ones."""
    spares = list(idle)
    left: dict[str, int] = {}
    kept: set[str] = set()
    for worker in sorted(spares, key=lambda one: one.state is not WorkerState.WARM):  # stable
        node = state.nodes[worker.node]
        if not bounded(state, node) or (len(node.workers) <= node.room and not node.device_taints):
            kept.add(worker.name)
            continue
        if node.name not in left:
            left[node.name] = len(set(open_places(node)) - _ahead(node, WorkerState.WARM))
        if worker.prepare is None:
            left[node.name] -= 1
        if worker.prepare is not None or left[node.name] >= 0:
            kept.add(worker.name)
    return [worker for worker in spares if worker.name in kept]


def local_rank(state: JobState, worker: Worker, rank: int, taken: Container[str] = ()) -> int:
    """Return the local rank with which `worker` would take `rank`; -1 if there is no place.

    It is the one for which the worker is prepared; else the lost worker's if that was on the same node; else the lowest free one. Local
    ranks whose device is not trusted are skipped, because a script chooses its device by this number. `taken`: names of spares that other
    ranks are about to take.
    """
    node = state.nodes[worker.node]
    if worker.prepare is not None:
        return worker.local_rank
    failed = node.tainted_places()
    old = state.holder(rank) if rank in state.ranks else None
    if old is not None and old.node == worker.node and old.local_rank >= 0 and old.local_rank not in failed:
        return old.local_rank
    if bounded(state, node):  # a drill is called off before a rank comes
        promised = sum(other.name in taken for other in node.idle(WorkerState.WARM) if other.prepare is None)
        places = [number for number in open_places(node) if number not in _ahead(node, WorkerState.WARM)]
        return places[promised] if promised < len(places) else -1
    held = {other.local_rank for other in node.idle(*_TAKEN)}
    used = held | failed | _ahead(node, WorkerState.WARM, WorkerState.DRILLING)
    return next(number for number in range(len(used) + 1) if number not in used)


def _ahead(node: Node, *states: WorkerState) -> set[int]:
    """Return the places of spares that are prepared for a rank."""
    return {other.local_rank for other in node.idle(*states) if other.prepare is not None}

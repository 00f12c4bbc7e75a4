"""How many workers a node has places for, and which of them (its local rank) a worker gets.

A *bounded* node has as many places as its agent offered spares when it joined, and each has an accelerator of its own: it was started for
spares only, or is claimed from the scheduler. No rank goes there beyond that number, or it would find no device of its own, and its script
would fail as if that were its own fault. A rehearsing spare, or one that waits, computes nothing that a rank needs: it keeps no rank away.

The other nodes run ranks from the start, and the user has said how many spares there are in addition. A rank from elsewhere may get a local
rank there that is not below `LOCAL_WORLD_SIZE`; other spares are preferred (`assignment`, row *place*).
"""

from __future__ import annotations

from understudy.core.state import JobState, Node, Worker
from understudy.core.transitions import WorkerState

_TAKEN = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
_IDLE = (WorkerState.STARTING, WorkerState.WARM)


def bounded(state: JobState, node: Node) -> bool:
    """Return whether the node has a place for no more workers than its agent offered spares."""
    return node.claim >= 0 or node.rank >= state.spec.nodes


def open_places(node: Node) -> list[int]:
    """Return the local ranks that no rank has on this bounded node, and whose device is trusted. A worker that was released keeps its place
    until it has ended.
    """
    taken = {worker.local_rank for worker in node.workers.values() if worker.state in (*_TAKEN, WorkerState.RELEASED)}
    return sorted(set(range(node.room)) - taken - node.tainted_places())


def missing_spares(state: JobState, node: Node) -> int:
    """Return how many spares are to be started on the node."""
    idle = [worker for worker in node.idle(*_IDLE) if worker.spare]
    wanted = min(node.spares, len(open_places(node))) if bounded(state, node) else node.spares
    return max(0, wanted - len(idle))


def room(state: JobState, node: Node) -> int:
    """Return how many ranks could come there in all, those included that wait for the next spare to start."""
    idle = len(node.idle(*_IDLE, WorkerState.REHEARSING))
    if not bounded(state, node):
        return node.spares if state.spec.replenish else idle
    return len(open_places(node)) if state.spec.replenish and node.spares else min(idle, len(open_places(node)))


def clearing(state: JobState, node: Node) -> int:
    """Return how many spares start on the node as soon as workers that were released have ended."""
    if node.lost or not bounded(state, node):
        return 0
    ending = sum(worker.state is WorkerState.RELEASED for worker in node.workers.values())
    return max(0, min(ending, node.spares - len(node.idle(*_IDLE))))


def local_rank(state: JobState, worker: Worker, rank: int) -> int:
    """Return the local rank with which `worker` would take `rank`: the one for which it is prepared; the lost worker's if that was on the
    same node; else the lowest that is free there. Not one whose device is not trusted, because a script goes to its device by this number.
    -1: there is no place for it.
    """
    node = state.nodes[worker.node]
    if worker.prepare is not None:
        return worker.local_rank
    failed = node.tainted_places()
    old = state.holder(rank) if rank in state.ranks else None
    if old is not None and old.node == worker.node and old.local_rank >= 0 and old.local_rank not in failed:
        return old.local_rank
    ahead = {other.local_rank for other in node.idle(WorkerState.WARM, WorkerState.REHEARSING) if other.prepare is not None}
    if bounded(state, node):
        return next((number for number in open_places(node) if number not in ahead), -1)
    used = ahead | failed | {other.local_rank for other in node.workers.values() if other.state in _TAKEN}
    return next(number for number in range(len(used) + 1) if number not in used)

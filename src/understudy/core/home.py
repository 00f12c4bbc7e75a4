"""Return ranks to a node that has been trusted again for a while (`JobSpec.home_after`).

Their peers and the better links are there, and the spares that they took become free again.

    trusted    a node is trusted again: the time starts. A taint in the meantime stops it, so an unstable node moves no rank
    due        the time is over: spares are started there for the ranks that were started on this node and are elsewhere
    go         in plain training, when none of these spares is still starting: the ranks move there, at one boundary

A rank whose return was called off twice, for whatever reason, stays where it is. A group that is kept together (`topology.py`) returns as a
whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection

from understudy.core import migration
from understudy.core.membership import top_up
from understudy.core.state import JobState, Move, Node, Worker
from understudy.core.topology import nvlink_domain, splits
from understudy.core.transitions import Phase, WorkerState
from understudy.messages import moves

TIMER = "home"
ATTEMPTS = 2  # to move a rank


def trusted(state: JobState, node: Node) -> None:
    if state.spec.home_after >= 0 and state.phase is not Phase.ENDED:
        node.home_at = state.now + state.spec.home_after
        _set_timer(state)


def doubted(state: JobState, node: Node) -> None:
    """Stop the return of ranks to a node that was tainted or lost."""
    node.home_at = 0.0
    if node.spares_for_return:
        node.spares, node.spares_for_return = max(0, node.spares - node.spares_for_return), 0
    _set_timer(state)


def due(state: JobState) -> None:
    """Start spares for returning ranks on nodes whose time is over."""
    first = min((node.home_at for node in state.nodes.values() if _runs(node)), default=0.0)
    for node in state.nodes.values():
        if _runs(node) and node.home_at <= max(first, state.now):
            node.home_at = -1.0
            for rank in _away(state, node):
                state.failed_moves.pop(rank, None)
            missing = min(len(_away(state, node)), _room(state, node)) - node.spares
            if missing > 0:
                node.spares, node.spares_for_return = node.spares + missing, node.spares_for_return + missing
    _set_timer(state)
    if state.incident is None:
        top_up(state)
    go(state)


def go(state: JobState) -> None:
    """Move the ranks back that can return, in plain training, if no rank must leave a node first."""
    if state.phase in (Phase.FORMING, Phase.ENDED) or state.incident is not None or state.unsettled():
        return
    homes = [node for node in state.nodes.values() if node.home_at < 0 and not node.lost and not node.taints]
    able = [(rank, node) for node in homes for rank in _away(state, node) if _may_go(state, rank, node)]
    found: list[Move] = []
    for rank, node in able:
        spare = _spare(node, rank, {move.newcomer for move in found})
        if sum(state.workers[move.newcomer].node == node.name for move in found) >= _room(state, node):
            continue
        if spare is not None and len(found) < migration.most(state):
            found.append(migration.move_of(state, rank, spare, moves.RETURNS(node=node.name)))
        elif spare is None and node.spares_for_return and node.idle(WorkerState.STARTING):
            return  # another pause for each later spare would cost more than waiting
    for move in found:
        _count(state, state.nodes[state.workers[move.newcomer].node], move.rank)
    if found:
        migration.begin(state, found)


def _may_go(state: JobState, rank: int, node: Node) -> bool:
    return state.failed_moves.get(rank, 0) < ATTEMPTS and _goes_with_group(state, rank, node)


def _count(state: JobState, node: Node, rank: int) -> None:
    """Count an attempt of this rank to return; it uses a spare that was started there for it."""
    state.failed_moves[rank] = state.failed_moves.get(rank, 0) + 1
    if node.spares_for_return and state.spec.replenish:
        node.spares = max(0, node.spares - 1)
    node.spares_for_return = max(0, node.spares_for_return - 1)


def _runs(node: Node) -> bool:
    return node.home_at > 0 and not node.lost and not node.taints


def _away(state: JobState, node: Node) -> list[int]:
    """Return the ranks that were started on this node and are on another one."""
    first = node.rank * state.spec.workers_per_node
    started = range(first, first + state.spec.workers_per_node)
    return [rank for rank in started if rank in state.ranks and state.holder(rank).node != node.name]


def _room(state: JobState, node: Node) -> int:
    """Return how many ranks can return: a rank that was restarted in place, or came from elsewhere, keeps its place."""
    if not state.spec.bounded_places:
        return state.spec.workers_per_node
    there = sum(worker.rank >= 0 and worker.state is not WorkerState.RELEASED for worker in node.workers.values())
    return max(0, state.spec.workers_per_node + node.room - len(node.tainted_places()) - there)


def _goes_with_group(state: JobState, rank: int, node: Node) -> bool:
    """Return whether the rank's group stays together: the others are in the node's NVLink domain, or can all return there."""
    if not splits(state, rank, node):
        return True
    here = nvlink_domain(node)

    def comes(other: int) -> bool:
        home = state.places.get(other // state.spec.workers_per_node)
        return home is not None and nvlink_domain(home) == here and home.home_at < 0 and not home.lost

    others = {other: state.nodes[state.holder(other).node] for other in state.together[rank]}
    return all(nvlink_domain(where) == here or comes(other) for other, where in others.items())


def _spare(node: Node, rank: int, taken: Collection[str]) -> Worker | None:
    idle = [worker for worker in node.idle(WorkerState.WARM) if worker.name not in taken]
    fit = [worker for worker in idle if worker.prepare is None or worker.prepare.rank == rank]
    return min(fit, key=lambda worker: not worker.ready, default=None)


def _set_timer(state: JobState) -> None:
    times = [node.home_at for node in state.nodes.values() if _runs(node)]
    if times:
        state.timer(TIMER, max(0.0, min(times) - state.now) + 0.001)  # a timer of 0 seconds would be cancelled
    else:
        state.cancel(TIMER)

"""Drain: empty a node, so that it can be patched or switched off. A taint of a separate source that no detector lifts.

    (taints.py)   NodeTainted of source "drain": its ranks move away, as from any node that must be left
    settle        in plain training: when its ranks have left, its spares are ended; when nothing of the job is left, this is reported once
    overdue       at the deadline, ranks and spares that are still there are given up, so that spares elsewhere take over as after a loss;
                  or they stay, if that was asked for

    releasable    a node of a scheduler that is empty permanently is given back
    released

No new rank and no spare goes to a drained node, even if the job has no other. Spares that are ended are not started elsewhere instead.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from understudy.core import drill, floating, places
from understudy.core.assignment import choose_spare
from understudy.core.events import NodeReleased
from understudy.core.membership import fence
from understudy.core.state import DRAIN, MOVES, JobState, Node, Worker
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import moves

TIMER = "drain"
ATTEMPTS = MOVES
_IDLE = (WorkerState.STARTING, WorkerState.WARM, WorkerState.DRILLING)


@dataclass(frozen=True)
class Plan:
    """The consequences of draining some nodes at the same time."""

    ranks: tuple[int, ...]  # that have to leave
    warm: int  # spares that could take one of them at once
    coming: int  # ranks that could follow: to spares that start, or will be started, and to nodes that may be claimed
    refused: str  # why it cannot be done; empty if it can

    def pauses(self, world_size: int) -> int:
        """Return the number of pauses if no rank has to wait for a spare: one rank stays until the others have moved."""
        return -(-len(self.ranks) // max(1, world_size - 1))

    @property
    def wait(self) -> int:
        """Return how many ranks follow when there are more spares; each may need a separate pause."""
        return max(0, len(self.ranks) - self.warm)


def plan(state: JobState, names: Collection[str]) -> Plan:
    """Return the plan. Moves may still fail later."""
    known = ", ".join(sorted(state.nodes)) or "none yet"
    missing = [name for name in names if name not in state.nodes]
    drained = [state.nodes[name] for name in names if name in state.nodes]
    ranks = tuple(rank for node in drained for rank in ranks_on(state, node))
    others = [node for node in state.nodes.values() if node.name not in names and not node.lost and not node.taints]
    fixed = not state.spec.replenish
    room = sum(places.room(state, other) for other in others) + floating.may_come(state)
    endless = not fixed and (state.spec.replaces_nodes or any(other.spares and not places.bounded(state, other) for other in others))
    idle = places.with_places(state, [spare for other in others for spare in other.idle(WorkerState.WARM)])
    warm = min(len(ranks), sum(spare.prepare is None or spare.prepare.rank in ranks for spare in idle))
    refused = ""
    if missing:
        refused = moves.NO_SUCH_NODE(node=missing[0], known=known)
    elif state.ended is not None:
        refused = moves.JOB_OVER()
    elif gone := [node.name for node in drained if node.gone]:
        refused = moves.NODE_RELEASED(node=gone[0])
    elif ranks and not room and not endless:
        refused = moves.NOWHERE_TO_GO(ranks=_named(list(ranks)))
    elif room < len(ranks) and not endless:
        too_few = moves.TOO_FEW_SPARES if fixed else moves.TOO_FEW_PLACES
        refused = too_few(ranks=_named(list(ranks)), room=room)
    return Plan(ranks, warm, max(0, room - warm), refused)


def ranks_on(state: JobState, node: Node) -> list[int]:
    """Return the ranks whose holder is there and not gone."""
    gone = (WorkerState.LOST, WorkerState.RELEASED)
    holders = ((rank, state.holder(rank)) for rank in state.ranks)
    return sorted(rank for rank, worker in holders if worker.node == node.name and worker.state not in gone)


def settle(state: JobState) -> None:
    for node in state.nodes.values():
        if node.drain is None:
            continue
        if not ranks_on(state, node):
            _end_spares(state, node)
        done = all(worker.state in (WorkerState.LOST, WorkerState.RELEASED) for worker in node.workers.values())
        if done and not node.drain.done:
            state.report(moves.DRAIN_DONE(node=node.name))
        node.taints[DRAIN] = replace(node.drain, done=done)


def _end_spares(state: JobState, node: Node) -> None:
    for spare in [worker for worker in node.workers.values() if worker.spare and worker.rank < 0 and worker.state in _IDLE]:
        if spare.state is WorkerState.DRILLING:
            drill.call_off(state, f"node {node.name} is drained")
        if spare.state is not WorkerState.LOST:
            fence(state, spare, "its node is drained")


def releasable(state: JobState, node: Node) -> bool:
    """Return whether the node may go back to the scheduler: it is lost, or must be left permanently, and in plain training no worker there
    has a rank.
    """
    if node.gone or node.claim >= 0:
        return False
    for_good = any(taint.leave and not taint.until for taint in node.taints.values())
    ended = (WorkerState.LOST, WorkerState.RELEASED)
    has_ranks = any(worker.rank >= 0 and worker.state not in ended for worker in node.workers.values())
    return node.lost or (for_good and not has_ranks and state.incident is None and not state.unsettled())


def released(state: JobState, event: NodeReleased) -> None:
    """Remove a node that has gone back to the scheduler. Later events about it are ignored."""
    node = state.nodes.get(event.node)
    if node is None or not releasable(state, node):
        state.ignore(event, RefusalReason.UNKNOWN if node is None else RefusalReason.STATE)
        return
    if not node.lost:
        _end_spares(state, node)
        state.report(moves.GIVEN_BACK(node=node.name))
    node.lost, node.gone, node.spares = True, True, 0
    settle(state)


def hindrance(state: JobState, node: Node) -> str:
    """Return why the ranks there are waiting; empty if they are not, or one is moving."""
    ranks = ranks_on(state, node)
    leaves = state.migration is not None and any(state.workers[leaver].node == node.name for leaver in state.migration.leavers)
    if not ranks or node.drain is None or not node.drain.leave or leaves:
        return ""
    if state.unsettled():
        return state.unsettled()
    if all(state.failed_moves.get(rank, 0) >= ATTEMPTS for rank in ranks):
        return moves.MOVED_IN_VAIN()
    spare = choose_spare(state, ranks[0])
    if spare is None or state.nodes[spare.node].taints:
        return moves.NODE_ASKED_FOR() if floating.under_way(state) else moves.NO_SPARE_ELSEWHERE()
    return ""


def overdue(state: JobState) -> list[Worker]:
    """Return the workers that are given up because the earliest deadline has passed."""
    drains = [(node, node.drain) for node in state.nodes.values() if node.drain is not None and node.drain.deadline > 0]
    first = min((drain.deadline for _, drain in drains), default=0.0)
    gone: list[Worker] = []
    for node, drain in drains:
        if drain.deadline > max(first, state.now):
            continue
        node.taints[DRAIN] = replace(drain, deadline=0.0, leave=drain.lose)
        there = [worker for worker in node.workers.values() if worker.rank >= 0 and worker.state is not WorkerState.RELEASED]
        moving = state.migration.leavers if state.migration is not None else set()
        ranks = sorted({worker.rank for worker in there if drain.lose or worker.name not in moving})
        if ranks:
            late = moves.OVERDUE_GIVEN_UP if drain.lose else moves.OVERDUE_LEFT
            state.report(late(node=node.name, ranks=_named(ranks), are="are" if ranks[1:] else "is"))
        if drain.lose:
            gone += there
            _end_spares(state, node)
    return gone


def _named(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"

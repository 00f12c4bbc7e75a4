"""Floating spares: claim nodes from the scheduler when they are needed, and give them back afterwards (`JobSpec.floating`).

    ask      in a recovery with more vacant ranks than spares that are warm or warming: ClaimNode. The job waits for the node as for a
             spare that is warming
    takes    a node joins with a claim. It is then a node like any other with spares only (`places.bounded`)
    ended    the scheduler cannot provide it. If it is still needed, it is claimed again after a pause
    settle   in plain training: a rank on a claimed node moves to a spare of the job's own; nodes that are not needed are given back; and
             a node is claimed for ranks that have to leave their node and have no spare

A claim ends when it is given back, when the scheduler ends it, or with its node. A node whose claim has ended counts as lost. If its agent
connects again, it is rejected, and GiveBackNode is repeated. So a node is given back even if the orchestrator that claimed it was killed
before it could write that down. At the end of the job all claims are given back (`JobState.end`).

Spares of the job's own are used first (`assignment.choose_spare`), and only they are prepared and drilled. Nothing is claimed before the
first transaction is committed: until then, the job can be started again from scratch.

Known limits: a migration that an operator asks for claims no node. A recovery waits for a node no longer than for any spare that is
warming.

The number of a claim is used once, and `ClaimNode` is sent only when it is in the journal. An orchestrator that takes over compares what
the scheduler has with `open_claims`, asks again for missing ones, and cancels the rest. If nothing can be started on a node, it is given
back and another one is claimed after a pause.
"""

from __future__ import annotations

from understudy.core.assignment import choose_spare
from understudy.core.commands import ClaimNode, GiveBackNode
from understudy.core.events import ClaimEnded, NodeJoined
from understudy.core.membership import fence
from understudy.core.migration import begin, move_of
from understudy.core.places import clearing, open_places, with_places
from understudy.core.state import MOVES, Claim, JobState, Node, Worker
from understudy.core.topology import splits
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import floating_spares, forming
from understudy.messages.base import Message

TIMER = "claim"
PAUSE = 10.0  # seconds after a claim that failed or was useless, before the next claim
GIVEN_BACK = "its node is given back"
AHEAD = 1000  # numbers beyond those in the journal that an orchestrator which was killed may have used
_IDLE = (WorkerState.STARTING, WorkerState.WARM)


def open_claims(state: JobState) -> list[Claim]:
    """Return the claims that the scheduler should know of, oldest first.

    A service that takes over does not know which commands reached the scheduler. Claims that the scheduler has in addition to these must be
    given back.
    """
    return list(state.claims.values())


def may_come(state: JobState) -> int:
    """Return how many spares may still come on claimed nodes: those that may be claimed, and those that have not joined yet."""
    joined = sum(bool(claim.node) for claim in state.claims.values())
    return max(0, state.spec.floating - joined) * state.spec.workers_per_node


def under_way(state: JobState) -> bool:
    """Return whether spares may come that are not warming yet: with a node, after the pause, or when a worker on a claimed node
    has gone.
    """
    asked = any(not claim.node for claim in state.claims.values())
    return asked or TIMER in state.timers or any(clearing(state, node) for node in _joined(state))


def scheduler_report(state: JobState) -> str:
    """Return what the scheduler reported, for the reason why the job has ended."""
    if not state.spec.floating:
        return ""
    last = f"; last message of the scheduler: {state.scheduler_message}" if state.scheduler_message else ""
    return f". Of {state.spec.floating} floating spares that there may be at a time, {len(state.claims)} are claimed{last}"


# -- what happens to a claim -----------------------------------------------------------------------------------------------------


def known(state: JobState, event: NodeJoined) -> bool:
    """Return whether this may be the node that it claims to be: a node with another claim must not take its place."""
    node, claim = state.nodes.get(event.node), state.claims.get(event.claim)
    if event.claim < 0 or claim is None:
        return node is None or node.lost or event.claim == node.claim
    return claim.node in ("", event.node)


def takes(state: JobState, event: NodeJoined) -> bool:
    """Return whether this node may join, or join again. Give it back if its claim is not open."""
    known = state.nodes.get(event.node)
    there = known if known is not None and not known.lost else None
    claim = state.claims.get(event.claim)
    if claim is not None and there is not None and claim.node == there.name:
        return True
    if event.claim < 0:
        if there is not None and there.claim >= 0:
            state.report(floating_spares.UNAWARE(node=event.node))
        return there is None or there.claim < 0
    if claim is None:
        if state.claimed <= event.claim < state.claimed + AHEAD:  # claimed by an orchestrator that was killed
            state.claimed = event.claim + 1
        state.report(floating_spares.CLAIM_OVER(node=event.node, claim=event.claim))
        state.emit(GiveBackNode(event.claim, event.node))
        return False
    if claim.node:  # the node that serves the claim must not end with the node that joins now
        state.report(floating_spares.CLAIM_SERVED(node=event.node, other=claim.node, claim=claim.number))
        return False
    if there is not None or (known is not None and known.claim < 0):
        _useless(state, claim, event.node, floating_spares.ALREADY_THERE(node=event.node))
        return False
    if event.node_rank < state.spec.nodes or event.node_rank in state.places or event.spares < 0:
        _useless(state, claim, event.node, forming.NODE_RANK_TAKEN(node=event.node, node_rank=event.node_rank))
        return False
    claim.node = event.node
    state.report(floating_spares.JOINED(node=event.node, claim=claim.number))
    return True


def _useless(state: JobState, claim: Claim, node: str, why: str) -> None:
    """Give back a claim that the scheduler has fulfilled with a node that cannot be used."""
    del state.claims[claim.number]
    state.scheduler_message = why
    state.report(why)
    state.emit(GiveBackNode(claim.number, node))
    state.timer(TIMER, PAUSE)


def ended(state: JobState, event: ClaimEnded) -> str:
    """End the claim, and return the name of its node, which is lost with it; empty if none has joined."""
    claim = state.claims.pop(event.claim, None)
    if claim is None:
        state.ignore(event, RefusalReason.OVER)
        return ""
    state.scheduler_message = event.detail
    if claim.node:
        state.nodes[claim.node].gone = True
        return claim.node
    state.report(floating_spares.NOT_FULFILLED(claim=claim.number, detail=event.detail))
    state.timer(TIMER, PAUSE)
    return ""


def lost(state: JobState, node: Node) -> None:
    """End the claim of a lost node: its place is free, and whatever is left there must end."""
    if node.claim < 0:
        return
    if state.places.get(node.rank) is node:
        del state.places[node.rank]
    if state.claims.pop(node.claim, None) is not None:
        state.emit(GiveBackNode(node.claim, node.name))


# -- needed claims --------------------------------------------------------------------------------------------------------------


def ask(state: JobState) -> None:
    """Claim nodes for vacant ranks that no spare can take."""
    if not state.spec.floating or not state.begun:
        return
    vacant = state.vacant()
    there = with_places(state, (worker for worker in state.idle(*_IDLE) if not state.nodes[worker.node].lost))
    short = len(vacant) - len(there) - sum(clearing(state, node) for node in _joined(state))
    if short <= 0:
        return
    for node in _joined(state):
        if not node.workers:
            _useless_node(state, node)
    _claim(state, vacant[-short:], floating_spares.FOR_LOST_RANK)


def release(state: JobState) -> None:
    """In plain training, give back the claimed nodes that are free, unless a rank has to leave its node."""
    if not state.spec.floating or state.incident is not None or state.unsettled() or _left(state):
        return
    state.cancel(TIMER)
    for claim in open_claims(state):
        if not claim.node or _is_free(state.nodes[claim.node]):
            _give_back(state, claim)


def settle(state: JobState) -> None:
    """In plain training, move ranks off claimed nodes, give nodes back, and claim nodes for ranks that cannot leave their node otherwise.

    Called when every rank that can leave its node, or return, is already moving.
    """
    if not state.spec.floating or state.incident is not None or state.unsettled() or _go(state):
        return
    release(state)
    left = _left(state)
    if not left:
        return
    warming = [state.nodes[worker.node] for worker in state.idle(WorkerState.STARTING)]
    warming = [node for node in warming if not (node.lost or node.taints or (node.claim >= 0 and _is_free(node)))]
    endless = state.spec.replenish and any(node.claim < 0 for node in warming)
    short = 0 if endless else len(left) - len(warming)
    for node in _joined(state):
        if not _is_free(node):
            short -= 0 if node.taints else clearing(state, node)
        elif short <= 0 or node.taints:
            _give_back(state, state.claims[node.claim])
        elif not _wanted(state, node):
            _useless_node(state, node)
        else:
            short -= _wanted(state, node)
    for claim in [claim for claim in open_claims(state) if not claim.node]:
        if short <= 0:
            _give_back(state, claim)
        short -= state.spec.workers_per_node
    short += state.spec.workers_per_node * sum(not claim.node for claim in state.claims.values())
    if short > 0:
        _claim(state, left[-short:], floating_spares.FOR_LEAVING_RANK)


def _claim(state: JobState, ranks: list[int], why: Message) -> None:
    """Claim nodes for these ranks, unless claims under way suffice. Does nothing during the pause."""
    if TIMER in state.timers:
        return
    size = state.spec.workers_per_node
    coming = sum(not claim.node for claim in state.claims.values())
    avoid = tuple(sorted(node.name for node in state.nodes.values() if (node.lost and not (node.gone and node.claim >= 0)) or node.taints))
    for rank in ranks[coming * size :: size][: max(0, state.spec.floating - len(state.claims))]:
        claim = Claim(state.claimed, rank, why(rank=rank), avoid)
        state.claims[claim.number] = claim
        state.claimed += 1
        state.report(floating_spares.ASKED_FOR(claim=claim.number, why=claim.reason))
        state.emit(ClaimNode(claim.number, rank, claim.reason, avoid))


def _go(state: JobState) -> bool:
    """Move the next rank on a claimed node to a spare of the job's own, if one can. Ranks that must leave a node or can return
    have moved.
    """
    for node in _joined(state):
        for worker in node.workers.values():
            if worker.state is not WorkerState.MEMBER or worker.moves >= MOVES:
                continue
            spare = choose_spare(state, worker.rank)
            if spare is None or splits(state, worker.rank, state.nodes[spare.node]):
                continue
            if state.nodes[spare.node].claim < 0 and not state.nodes[spare.node].taints:
                worker.moves += 1
                begin(state, [move_of(state, worker.rank, spare, floating_spares.OWN_SPARE(node=node.name))])
                return True
    return False


def _give_back(state: JobState, claim: Claim, why: Message = floating_spares.NODE_NOT_NEEDED) -> None:
    del state.claims[claim.number]
    if claim.node:
        node = state.nodes[claim.node]
        for worker in list(node.workers.values()):
            fence(state, worker, GIVEN_BACK)
        node.lost, node.spares, node.gone = True, 0, True
        lost(state, node)
    state.report(why(claim=claim.number, node=claim.node) if claim.node else floating_spares.NOT_NEEDED(claim=claim.number))
    state.emit(GiveBackNode(claim.number, claim.node))


def _useless_node(state: JobState, node: Node) -> None:
    """Give back a node on which no spare starts. The next claim waits, so that this is not repeated at once."""
    _give_back(state, state.claims[node.claim], floating_spares.NODE_USELESS)
    state.timer(TIMER, PAUSE)


# -- questions -------------------------------------------------------------------------------------------------------------------


def _joined(state: JobState) -> list[Node]:
    return [state.nodes[claim.node] for claim in state.claims.values() if claim.node]


def _is_free(node: Node) -> bool:
    """Return whether the node has no ranks, and no workers that had one and are still ending."""
    return all(worker.state in _IDLE for worker in node.workers.values())


def _wanted(state: JobState, node: Node) -> int:
    """Return how many spares exist on a free node, or are about to."""
    return min(node.spares, len(open_places(node)) if state.spec.bounded_places else node.room)


def _left(state: JobState) -> list[int]:
    """Return the ranks that must leave their node and whose moves have not failed too often."""
    nodes = [node for node in state.nodes.values() if any(taint.leave for taint in node.taints.values())]
    there: list[Worker] = [worker for node in nodes for worker in node.workers.values() if worker.state is WorkerState.MEMBER]
    return sorted(worker.rank for worker in there if state.failed_moves.get(worker.rank, 0) < MOVES)

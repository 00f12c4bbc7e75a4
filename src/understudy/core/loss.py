"""Handle losses, and events that may turn out to be losses: every way in which a recovery begins.

The loss of a worker without a rank costs a spare. The loss of a rank's holder costs a generation. The loss of a holder whose script has
ended costs nothing until its rank is needed. Broken communication is evidence: the loss that explains it usually arrives within
milliseconds, and if none does, all ranks recover in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core import admission, drain, drill, floating, home, preparation, proofs, taints, workers
from understudy.core.events import (
    ClaimEnded,
    CommunicationBroken,
    Expired,
    LostNode,
    NodeJoined,
    NodesLost,
    VerifyFailed,
    WorkerLost,
    WorkerWarm,
)
from understudy.core.membership import fence, open_incident
from understudy.core.migration import disrupted
from understudy.core.model import LossCause, Timeouts
from understudy.core.places import bounded
from understudy.core.quiesce import advance, begin, fill, waited, want_more
from understudy.core.state import DEVICE, JobState, Taint, Worker
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import losses as texts

EXPLAIN_WITHIN = 30.0  # seconds for a loss to explain broken communication, if it breaks again before a step is complete
MOST_NAMED = 16  # losses that a reason names: it is sent to every worker

_LOST = {
    LossCause.KILLED: texts.KILLED,
    LossCause.CRASHED: texts.CRASHED,
    LossCause.EXITED: texts.EXITED,
    LossCause.HUNG: texts.HUNG,
    LossCause.NODE: texts.LOST_WITH_NODE,
    LossCause.DRAINED: texts.GIVEN_UP,
    LossCause.DIGEST: texts.NOT_VERIFIED,
    LossCause.DEVICE: texts.DEVICE_FAILED,
    LossCause.CORRUPT: texts.HOLDS_OTHER_STATE,
}


@dataclass(frozen=True)
class Loss:
    worker: Worker
    cause: LossCause
    detail: str
    happened: float


def node_joined(state: JobState, event: NodeJoined) -> None:
    """Let a node join. Workers that its agent does not know of ended with the host, which was restarted unnoticed."""
    if not floating.takes(state, event):
        return
    node = state.nodes.get(event.node)
    if node is not None and node.gone and node.claim < 0 and event.claim < 0:
        state.ignore(event, RefusalReason.OVER)
        return
    if node is not None and event.workers is not None:
        there = [worker for worker in node.workers.values() if worker.pid is not None or worker.state is not WorkerState.STARTING]
        there = [worker for worker in there if worker.state is not WorkerState.RELEASED or bounded(state, node)]  # that waits for its end
        gone = [worker for worker in there if worker.name not in event.workers]
        there_before = not node.lost
        lose(state, [Loss(worker, LossCause.NODE, texts.HOST_RESTARTED(node=node.name), state.now) for worker in gone])
        if there_before and node.lost:
            return  # it is given back, because no spare starts there any more
    workers.node_joined(state, event)


def worker_lost(state: JobState, event: WorkerLost) -> None:
    worker = state.workers[event.worker]
    if event.cause is LossCause.DEVICE and worker.device:  # a policy reports it; its spare goes to another device
        taints.taint(state, worker.node, Taint(DEVICE, event.detail, worker.device))
    lose(state, [Loss(worker, event.cause, event.detail, event.happened)])


def worker_warm(state: JobState, event: WorkerWarm) -> None:
    worker = state.workers[event.worker]
    if event.rank >= 0 and event.rank != worker.rank:
        # An orchestrator that was killed gave it this rank and could not write that down. Now it sets up for an unknown decision, or it
        # already has a rank that now belongs to another worker.
        if worker.state is WorkerState.STARTING:
            state.set_worker_state(worker, WorkerState.WARM)
        detail = texts.UNKNOWN_ASSIGNMENT(rank=event.rank)
        lose(state, [Loss(worker, LossCause.KILLED, detail, state.now)])
    else:
        workers.worker_warm(state, event)


def nodes_lost(state: JobState, event: NodesLost) -> None:
    losses: list[Loss] = []
    missed: str = ""
    for lost in event.nodes:
        node = state.nodes.get(lost.node)
        if node is None or node.lost:
            state.ignore(event, RefusalReason.UNKNOWN if node is None else RefusalReason.AGAIN)
            continue
        node.lost, node.spares = True, 0
        home.doubted(state, node)
        floating.lost(state, node)
        admission.settle(state)
        state.report(texts.NODE_LOST(node=node.name, detail=lost.detail))
        losses += [Loss(worker, LossCause.NODE, lost.detail, lost.happened or state.now) for worker in node.workers.values()]
        if node.rank < state.spec.nodes and not missed:
            missed = texts.NODE_LOST_EARLY(node=node.name, detail=lost.detail)
    lose(state, losses)
    if state.phase is Phase.FORMING and missed:
        state.end(1, missed)


def claim_ended(state: JobState, event: ClaimEnded) -> None:
    """Handle the node that serves the claim as lost."""
    node = floating.ended(state, event)
    if node:
        nodes_lost(state, NodesLost((LostNode(node, texts.CLAIM_ENDED(detail=event.detail), state.now),)))


def verify_failed(state: JobState, event: VerifyFailed) -> None:
    worker = state.workers[event.worker]
    if not worker.comes_with(event.generation):
        state.ignore(event, RefusalReason.GENERATION)
        return
    lose(state, [Loss(worker, LossCause.DIGEST, event.detail, state.now)])


def communication_broken(state: JobState, event: CommunicationBroken) -> None:
    if event.generation != state.generation or state.broken:
        state.ignore(event, RefusalReason.AGAIN if event.generation == state.generation else RefusalReason.GENERATION)
        return
    state.broken = f"{state.describe(state.workers[event.worker])} reports: {event.detail}"
    state.broken_at = state.now
    if state.finished_then_lost:
        finished_then_lost_needed(state, state.broken)
    else:
        # The first time, all recover when the loss of a node would be known. If that does not help, the network is given time.
        state.timer("communication", explained_after(state.timeouts) if state.all_committed else EXPLAIN_WITHIN)


def explained_after(timeouts: Timeouts) -> float:
    """Return the seconds after which a loss that breaks communication is known: of a worker at once, of a node after its limit."""
    return 2 * timeouts.node_lost + 1.0


def expired(state: JobState, event: Expired) -> None:
    if event.timer not in state.timers:
        state.ignore(event, RefusalReason.OVER)
        return
    state.timers.remove(event.timer)
    recovery = state.recovery
    if event.timer == "communication" and state.broken:
        reason = texts.COMMUNICATION_BROKE(found=state.broken)
        state.report(reason)
        incident = open_incident(state, state.broken_at, reason)
        incident.note(reason)
        incident.unexplained = True
        disrupted(state, set(), reason)
        begin(state, reason, [], unexplained=True)
    elif event.timer == "quiesce" and recovery is not None and recovery.planned:
        reason = texts.NO_BOUNDARY(seconds=state.timeouts.quiesce)
        open_incident(state, state.now, reason)
        disrupted(state, set(), reason)
        begin(state, reason, [])
    elif event.timer == "quiesce" and recovery is not None:
        detail = texts.DID_NOT_STOP(seconds=state.timeouts.quiesce)
        late = [state.workers[name] for name in sorted(recovery.waiting)]
        lose(state, [Loss(worker, LossCause.HUNG, detail, state.now) for worker in late])
    elif event.timer == "hold" and state.vacant():
        waited(state)
    elif event.timer == "migration" and state.migration is not None:
        detail = texts.NOT_READY(seconds=state.timeouts.hang_first)
        late = [state.workers[move.newcomer] for move in state.migration.moves if not move.ready]
        lose(state, [Loss(newcomer, LossCause.HUNG, detail, state.now) for newcomer in late])
    elif event.timer == drill.TIMER:
        drill.overdue(state)
    elif event.timer == taints.TIMER:
        taints.expired(state)
    elif event.timer == admission.TIMER:
        admission.again(state)
    elif event.timer == home.TIMER:
        home.due(state)
    elif event.timer == drain.TIMER:
        detail = texts.DRAIN_DEADLINE()
        lose(state, [Loss(worker, LossCause.DRAINED, detail, state.now) for worker in taints.overdue(state)])
        taints.leave(state)
    elif event.timer == preparation.TIMER:
        preparation.overdue(state)
    elif event.timer == floating.TIMER:  # the machine itself asks for nodes in plain training, after every event
        if state.phase is Phase.QUIESCING and state.vacant():
            fill(state)
            advance(state)
    else:  # resume
        detail = texts.NOT_VERIFIED_IN_TIME(seconds=state.timeouts.hang_first)
        lose(state, [Loss(worker, LossCause.HUNG, detail, state.now) for worker in state.newcomers()])


def lose(state: JobState, losses: list[Loss]) -> None:
    """Fence these workers, then handle their roles in the job, once."""
    idle: list[tuple[Loss, WorkerState]] = []
    of_holders: list[Loss] = []
    room = False
    for loss in losses:
        was = loss.worker.state
        if was is WorkerState.LOST:
            continue
        if was is WorkerState.RELEASED:  # it was told to exit
            state.set_worker_state(loss.worker, WorkerState.LOST)
            room = room or bounded(state, state.nodes[loss.worker.node])
            continue
        fence(state, loss.worker, f"{loss.cause}: {loss.detail}")
        if loss.worker.rank < 0:
            idle.append((loss, was))
        else:
            of_holders.append(loss)
    _lose_holders(state, of_holders)
    for loss, was in idle:
        workers.idle_lost(state, loss.worker, was, loss.detail)
    if idle and state.ended is None:
        taints.leave(state)  # a rank may have waited for one of them
    if room and state.ended is None:
        floating.release(state)
        want_more(state)
        advance(state)


def _lose_holders(state: JobState, losses: list[Loss]) -> None:
    migration = state.migration
    ranks: list[tuple[int, LossCause]] = []
    described: list[str] = []
    boundary = state.recovery is not None and state.recovery.planned
    interrupts = boundary
    for loss in losses:
        worker = loss.worker
        what = _LOST.get(loss.cause, texts.LOST)(rank=worker.rank, worker=worker.name, node=worker.node, detail=loss.detail)
        if not worker.finished or not loss.detail.startswith("exit code 0"):  # many scripts end like this
            state.report(what)
        described.append(what)
        if worker.finished and state.phase is Phase.TRAINING and not interrupts and loss.cause is not LossCause.CORRUPT:
            state.finished_then_lost.add(worker.rank)
            continue
        preparing = migration is not None and migration.to(worker.name) is not None and not state.holds(worker)
        if preparing and not boundary:
            continue
        interrupts = True
        incident = open_incident(state, loss.happened, what)
        incident.lost(worker.rank, loss.cause, loss.detail, worker.name)
        proofs.lost(state, incident, worker.rank)
        if state.crashes is not None:
            state.crashes.count(worker.name, loss.cause, what)
        if state.holds(worker):
            ranks.append((worker.rank, loss.cause))
    if not losses:
        return
    reason = "; ".join(described[:MOST_NAMED]) + (f"; and {len(described) - MOST_NAMED} more" if len(described) > MOST_NAMED else "")
    disrupted(state, {loss.worker.name for loss in losses}, reason)
    if interrupts and state.crashes is not None and (verdict := state.crashes.verdict()):
        state.end(1, verdict)
    elif interrupts:
        begin(state, reason, ranks)
    elif state.finished_then_lost and state.broken:
        finished_then_lost_needed(state, state.broken)


def finished_then_lost_needed(state: JobState, why: str) -> None:
    """Handle a worker that had finished and is gone as a loss, because others still need its rank."""
    gone = ", ".join(state.describe(state.holder(rank)) for rank in sorted(state.finished_then_lost))
    reason = texts.FINISHED_AND_NEEDED(workers=gone, why=why)
    open_incident(state, state.now, reason)
    begin(state, reason, [])

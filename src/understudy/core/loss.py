"""Losses, and what may turn out to be one: every way in which a recovery begins.

A worker without a rank costs a spare. A rank's holder costs a generation. A holder whose script has ended costs
nothing until somebody needs it. Broken communication is evidence: the loss that explains it usually arrives within
milliseconds, and if none does, everyone recovers in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.events import CommunicationBroken, Expired, NodeLost, VerifyFailed, WorkerLost
from understudy.core.membership import fence, open_incident
from understudy.core.migration import disrupted
from understudy.core.nouns import LossCause
from understudy.core.quiesce import advance, begin, no_spare
from understudy.core.resume import maybe_done
from understudy.core.state import JobState, Phase, Worker, WorkerState
from understudy.core.workers import idle_lost

EXPLAIN_WITHIN = 30.0  # seconds for a loss to explain broken communication

_VERB = {
    LossCause.KILLED: "was killed",
    LossCause.CRASHED: "crashed",
    LossCause.EXITED: "exited",
    LossCause.HUNG: "hung",
    LossCause.NODE: "was lost with its node",
    LossCause.DIGEST: "did not verify",
}


@dataclass(frozen=True)
class _Loss:
    worker: Worker
    cause: LossCause
    detail: str
    happened: float


def worker_lost(state: JobState, event: WorkerLost) -> None:
    worker = state.workers.get(event.worker)
    if worker is not None:
        _lose(state, [_Loss(worker, event.cause, event.detail, event.happened)])


def node_lost(state: JobState, event: NodeLost) -> None:
    node = state.nodes.get(event.node)
    if node is None or node.lost:
        return
    node.lost, node.spares = True, 0
    state.tell(f"node {node.name} was lost: {event.detail}")
    _lose(state, [_Loss(worker, LossCause.NODE, event.detail, event.happened or state.now) for worker in node.workers.values()])
    if state.phase is Phase.FORMING and node.rank < state.spec.nodes:
        state.end(1, f"node {node.name} was lost before training began: {event.detail}")


def verify_failed(state: JobState, event: VerifyFailed) -> None:
    worker = state.workers.get(event.worker)
    if worker is None or worker.state is not WorkerState.NEWCOMER or event.generation != worker.recovered:
        return
    _lose(state, [_Loss(worker, LossCause.DIGEST, event.detail, state.now)])


def communication_broken(state: JobState, event: CommunicationBroken) -> None:
    worker = state.workers.get(event.worker)
    if worker is None or worker.state is WorkerState.LOST or event.generation != state.generation or state.broken:
        return
    if state.phase not in (Phase.TRAINING, Phase.RESUMING):
        return
    state.broken = f"{state.describe(worker)} says: {event.detail}"
    if state.departed:
        _departed_needed(state)
    else:
        state.timer("communication", EXPLAIN_WITHIN)


def expired(state: JobState, event: Expired) -> None:
    if event.timer not in state.timers:
        return
    state.timers.remove(event.timer)
    recovery = state.recovery
    if event.timer == "communication" and state.broken:
        reason = f"communication broke and no worker was lost: {state.broken}"
        state.tell(reason)
        open_incident(state, state.now - EXPLAIN_WITHIN, reason).note(reason)
        begin(state, reason, [], unexplained=True)
    elif event.timer == "quiesce" and recovery is not None and recovery.planned:
        reason = f"no boundary was reached within {state.timeouts.quiesce:g} s"
        open_incident(state, state.now, reason)
        disrupted(state, set(), reason)
        begin(state, reason, [])
        advance(state)
    elif event.timer == "quiesce" and recovery is not None:
        detail = f"did not stop within {state.timeouts.quiesce:g} s after the abort of its generation"
        late = [state.workers[name] for name in sorted(recovery.waiting)]
        _lose(state, [_Loss(worker, LossCause.HUNG, detail, state.now) for worker in late])
    elif event.timer == "hold" and state.vacant():
        state.end(1, f"{no_spare(state, state.vacant())} (waited {state.timeouts.hang_first:g} s for one to warm)")
    elif event.timer == "migration" and state.migration is not None:
        detail = f"was not ready to take over within {state.timeouts.hang_first:g} s"
        newcomer = state.workers[state.migration.newcomer]
        _lose(state, [_Loss(newcomer, LossCause.HUNG, detail, state.now)])
    elif event.timer == "resume":
        detail = f"was not verified within {state.timeouts.hang_first:g} s"
        _lose(state, [_Loss(worker, LossCause.HUNG, detail, state.now) for worker in state.newcomers()])


def _lose(state: JobState, losses: list[_Loss]) -> None:
    """Fence them all, then do what their parts in the job ask for, once."""
    idle: list[tuple[_Loss, WorkerState]] = []
    held: list[_Loss] = []
    for loss in losses:
        was = loss.worker.state
        if was is WorkerState.LOST:
            continue
        if was is WorkerState.RELEASED:  # it was told to go
            state.become(loss.worker, WorkerState.LOST)
            continue
        fence(state, loss.worker, f"{loss.cause}: {loss.detail}")
        if loss.worker.rank < 0:
            idle.append((loss, was))
        else:
            held.append(loss)
    _lose_holders(state, held)
    for loss, was in idle:
        if state.ended is None:
            idle_lost(state, loss.worker, was, loss.detail)


def _lose_holders(state: JobState, losses: list[_Loss]) -> None:
    migration = state.migration
    ranks: list[tuple[int, LossCause]] = []
    told: list[str] = []
    boundary = state.recovery is not None and state.recovery.planned and state.phase is Phase.QUIESCING
    interrupts = boundary
    for loss in losses:
        worker = loss.worker
        what = f"{state.describe(worker)} {_VERB.get(loss.cause, 'was lost')}: {loss.detail}"
        state.tell(what)
        told.append(what)
        if worker.finished and state.phase is Phase.TRAINING and not interrupts:
            state.departed.add(worker.rank)
            continue
        preparing = migration is not None and worker.name == migration.newcomer and not state.holds(worker)
        if preparing and not boundary:
            continue
        interrupts = True
        incident = open_incident(state, loss.happened, what)
        incident.lost(worker.rank, loss.cause, loss.detail, worker.name)
        if state.holds(worker):
            ranks.append((worker.rank, loss.cause))
    if not losses:
        return
    reason = "; ".join(told)
    disrupted(state, {loss.worker.name for loss in losses}, reason)
    if interrupts:
        begin(state, reason, ranks)
        if state.ended is None:
            advance(state)
    elif state.departed and state.broken:
        _departed_needed(state)
    else:
        maybe_done(state)


def _departed_needed(state: JobState) -> None:
    """Others still wait for a rank whose worker had finished and is gone: it is a loss after all."""
    workers = [state.holder(rank) for rank in sorted(state.departed)]
    reason = f"{', '.join(map(state.describe, workers))} was lost after it had finished, and is needed: {state.broken}"
    incident = open_incident(state, state.now, reason)
    for worker in workers:
        worker.finished = False
        incident.lost(worker.rank, LossCause.EXITED, "lost after it had finished", worker.name)
    begin(state, reason, [(worker.rank, LossCause.EXITED) for worker in workers])
    if state.ended is None:
        advance(state)

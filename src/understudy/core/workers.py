"""Let nodes join; start, warm, refuse and replace workers without a rank; repeat commands after a reconnect.

A worker that is lost before ranks are assigned is replaced, first by a spare of its node. A node on which workers are repeatedly lost
before they are warm gets no more of them. A spare for which a node has no room is tried again after the next incident.
"""

from __future__ import annotations

from understudy.core import admission, drill, floating, home
from understudy.core.assignment import spare_share
from understudy.core.commands import Abort, KillWorker, Publish, Release, StartWorker
from understudy.core.events import NodeJoined, StartRefused, WorkerStarted, WorkerWarm
from understudy.core.forming import give_out_ranks, start_ranks
from understudy.core.membership import start_worker, top_up
from understudy.core.preparation import missed, prepare, publish_again
from understudy.core.quiesce import advance, fill, want_more
from understudy.core.state import JobState, Migration, Node, Stage, Worker
from understudy.core.taints import leave
from understudy.core.topology import failure_domain, meanings
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import forming

MOST_SPARES = 1024  # on one node, as an agent asks for them; a service takes no more workers on a node either


def node_joined(state: JobState, event: NodeJoined) -> None:
    node = state.nodes.get(event.node)
    before = node if node is not None and node.lost and node.claim >= 0 else None  # it has served a claim that has ended
    if node is not None and before is None:
        node.address = event.address
        _repeat(state, node)
        if node.lost:
            node.lost, node.spares, node.refused = False, _spares(state, event), 0
            node.room = node.spares
            state.report(forming.NODE_BACK(node=node.name))
            if not node.taints:
                home.trusted(state, node)
            want_more(state)
        admission.ask(state, node)
        return
    taken = event.node_rank in state.places or event.node_rank < 0
    if taken or (event.spares < 0 and event.node_rank >= state.spec.nodes + state.spec.spare_nodes):
        state.report(forming.NODE_RANK_TAKEN(node=event.node, node_rank=event.node_rank))
        return
    labels = meanings(event.labels)
    domain = failure_domain(event.node, event.domain, labels)
    spares = _spares(state, event)
    node = Node(event.node, event.address, event.node_rank, spares, domain, spares, given=labels, claim=max(-1, event.claim))
    if before is not None:
        node.taints, node.device_taints, node.trusted_at = before.taints, before.device_taints, before.trusted_at
    state.nodes[event.node] = state.places[node.rank] = node
    if not state.complete():
        return
    floating.release(state)
    if node.rank < state.spec.nodes:
        start_ranks(state)
    want_more(state)


def _spares(state: JobState, event: NodeJoined) -> int:
    """Return the number of spares that the agent asks for, limited to what a host can have: each is an entry in memory before it is a
    process.
    """
    return spare_share(state.spec, event.node_rank) if event.spares < 0 else min(event.spares, MOST_SPARES)


def worker_started(state: JobState, event: WorkerStarted) -> None:
    worker = state.workers.get(event.worker)
    if worker is None:  # started after the last journalled event, before a crash of the orchestrator
        worker = Worker(event.worker, event.node, spare=True, state=WorkerState.LOST)
        state.workers[event.worker] = worker
        number = event.worker.removeprefix("w")
        if number.isdecimal():
            state.started = max(state.started, int(number) + 1)
    worker.pid = event.pid
    if worker.state is WorkerState.LOST:
        state.emit(KillWorker(worker.name, "fenced"))


def worker_warm(state: JobState, event: WorkerWarm) -> None:
    worker = state.workers[event.worker]
    if worker.state is not WorkerState.STARTING:
        state.ignore(event, RefusalReason.AGAIN)
        return
    state.set_worker_state(worker, WorkerState.WARM)
    worker.store, worker.torch, worker.rejoins = event.store, event.torch, event.rejoins
    state.nodes[worker.node].failed_starts = 0
    if state.phase is Phase.FORMING:
        give_out_ranks(state)
    elif state.phase is Phase.QUIESCING:
        fill(state)
        advance(state)
    else:
        prepare(state)
        leave(state)


def start_refused(state: JobState, event: StartRefused) -> None:
    worker = state.workers[event.worker]
    state.set_worker_state(worker, WorkerState.LOST)
    if not worker.spare:
        state.end(1, forming.WORKER_NOT_STARTED(node=event.node, worker=worker.name, detail=event.detail))
        return
    node = state.nodes[worker.node]
    if node.spares or not state.spec.bounded_places:
        node.spares, node.refused, node.spares_for_return = max(0, node.spares - 1), node.refused + 1, max(0, node.spares_for_return - 1)
    else:  # started in the place of a rank's worker
        node.failed_starts += 1
    state.report(forming.SPARE_NOT_STARTED(node=node.name, detail=event.detail))
    if state.phase is Phase.QUIESCING:
        if state.vacant():
            fill(state)
        advance(state)
    elif state.phase is not Phase.FORMING:
        leave(state)  # ranks that return may have waited for this spare


def idle_lost(state: JobState, worker: Worker, was: WorkerState, detail: str) -> None:
    """Replace a worker without a rank that is gone (and already fenced)."""
    node = state.nodes[worker.node]
    drill.lost(state, worker, detail)
    if worker.prepare is not None and not worker.ready and not node.lost:
        missed(state, worker.prepare.rank)
    state.report((forming.SPARE_LOST if worker.spare else forming.WORKER_LOST)(worker=worker.name, node=worker.node, detail=detail))
    if was is WorkerState.STARTING:
        node.failed_starts += 1
    hopeless = node.failed_starts > state.spec.max_restarts
    if not worker.spare:
        if hopeless or node.lost:
            state.end(1, forming.LOST_BEFORE_WARM(node=node.name, detail=detail))
            return
        spares = [w for w in node.idle(WorkerState.WARM, WorkerState.STARTING) if w.spare]
        if spares:
            min(spares, key=lambda w: w.state is not WorkerState.WARM).spare = False
        else:
            start_worker(state, node, spare=False)
    elif hopeless or not state.spec.replenish:
        node.spares = max(0, node.spares - 1)
        if hopeless:
            state.report(forming.NO_MORE_SPARES(count=node.failed_starts, node=node.name))
    if state.phase is Phase.FORMING:
        top_up(state)
        give_out_ranks(state)
    elif state.phase is Phase.QUIESCING:
        fill(state)
        advance(state)
    elif state.incident is None:
        top_up(state)


def _repeat(state: JobState, node: Node) -> None:
    """Repeat pending commands after an agent has reconnected, because they may be lost. Workers recognize repeats by kind and
    generation.
    """
    recovery = state.recovery
    for worker in node.workers.values():
        if worker.state is WorkerState.STARTING and worker.pid is None:
            state.emit(StartWorker(node.name, worker.name, worker.spare))
        if worker.state is WorkerState.RELEASED:
            state.emit(Release(worker.name, 0))
        if worker.rank < 0 and worker.prepare is not None and not worker.ready:
            state.emit(worker.prepare)
        drill.repeat(state, worker)
        if worker.rank < 0 or worker.state is WorkerState.RELEASED:
            continue
        if worker.assign is not None and worker.last_seen_generation < worker.assign.generation:
            state.emit(worker.assign)
        if state.migration is not None and worker.state is WorkerState.MEMBER:
            _publish(state, state.migration, worker)
        if worker.state is WorkerState.MEMBER:
            publish_again(state, worker)
        if recovery is not None and worker.name in recovery.sent and worker.committed < recovery.generation:
            message = recovery.sent[worker.name]
            if worker.name in recovery.waiting or not isinstance(message, Abort):
                state.emit(message)


def _publish(state: JobState, migration: Migration, worker: Worker) -> None:
    assign = state.workers[migration.moves[0].newcomer].assign
    if migration.stage is Stage.PREPARING and assign is not None:
        state.emit(Publish(worker.name, migration.generation, assign.store, migration.ranks))

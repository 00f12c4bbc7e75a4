"""From nothing to a job that trains: nodes join, workers warm, ranks are given out. And back: starting anew.

Ranks are numbered node by node. All workers start the same way; those started for a rank take it in the order of their
names once enough of them are warm on every node. A worker lost before that is replaced, first by a spare of its node.

A loss before the first transaction ends here too: nothing was done yet, so every rank's worker is started anew, at most
`max_restarts` times.
"""

from __future__ import annotations

from understudy.core.assignment import spare_share
from understudy.core.commands import Abort, KillWorker, Publish, Release, StartWorker
from understudy.core.events import NodeJoined, StartRefused, WorkerStarted, WorkerWarm
from understudy.core.membership import fence, give_back, give_rank, start_worker, top_up
from understudy.core.quiesce import advance, fill
from understudy.core.state import JobState, Migration, Node, Phase, Stage, Worker, WorkerState


def node_joined(state: JobState, event: NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is not None:
        node.address = event.address
        if node.lost:
            node.lost, node.spares = False, spare_share(state.spec, node.rank)
            state.tell(f"node {node.name} is back")
            if state.incident is None or state.vacant():
                top_up(state)
        _repeat(state, node)
        return
    taken = any(other.rank == event.node_rank for other in state.nodes.values())
    if taken or not 0 <= event.node_rank < state.spec.nodes:
        state.tell(f"node {event.node} was refused: its node rank {event.node_rank} is taken or out of range")
        return
    spares = spare_share(state.spec, event.node_rank)
    state.nodes[event.node] = Node(event.node, event.address, event.node_rank, spares)
    if len(state.nodes) == state.spec.nodes:
        _start_ranks(state)
        top_up(state)


def worker_started(state: JobState, event: WorkerStarted) -> None:
    worker = state.workers.get(event.worker)
    if worker is None:  # from before a crash of the orchestrator, started after the last journalled event
        worker = Worker(event.worker, event.node, spare=True, state=WorkerState.LOST)
        state.workers[event.worker] = worker
    worker.pid = event.pid
    if worker.state is WorkerState.LOST:
        state.emit(KillWorker(worker.name, "fenced"))


def worker_warm(state: JobState, event: WorkerWarm) -> None:
    worker = state.workers.get(event.worker)
    if worker is None or worker.state is not WorkerState.STARTING:
        return
    worker.state, worker.store = WorkerState.WARM, event.store
    state.nodes[worker.node].failed_starts = 0
    if state.phase is Phase.FORMING:
        give_out_ranks(state)
    elif state.phase is Phase.QUIESCING and state.vacant():
        fill(state)
        advance(state)


def start_refused(state: JobState, event: StartRefused) -> None:
    worker = state.workers.get(event.worker)
    if worker is None or worker.state is not WorkerState.STARTING:
        return
    worker.state = WorkerState.LOST
    if not worker.spare:
        state.end(1, f"node {event.node} could not start worker {worker.name}: {event.detail}")
        return
    node = state.nodes[worker.node]
    node.spares, node.refused = max(0, node.spares - 1), node.refused + 1
    state.tell(f"node {node.name} could not start a spare: {event.detail}")
    if state.phase is Phase.QUIESCING:
        advance(state)


def idle_lost(state: JobState, worker: Worker, was: WorkerState, detail: str) -> None:
    """A worker without a rank is gone (and fenced already)."""
    node = state.nodes[worker.node]
    role = "spare" if worker.spare else "worker"
    state.tell(f"{role} {worker.name} on node {worker.node} was lost: {detail}")
    if was is WorkerState.STARTING:
        node.failed_starts += 1
    hopeless = node.failed_starts > state.spec.max_restarts
    if not worker.spare:
        if hopeless or node.lost:
            state.end(1, f"workers on node {node.name} are lost before they are warm: {detail}")
            return
        spares = [w for w in state.idle(WorkerState.WARM, WorkerState.STARTING) if w.spare and w.node == node.name]
        if spares:
            min(spares, key=lambda w: w.state is not WorkerState.WARM).spare = False
        else:
            start_worker(state, node, spare=False)
    elif hopeless or not state.spec.replenish:
        node.spares = max(0, node.spares - 1)
    if state.phase is Phase.FORMING:
        top_up(state)
        give_out_ranks(state)
    elif state.phase is Phase.QUIESCING:
        fill(state)
        advance(state)
    elif state.incident is None:
        top_up(state)


def give_out_ranks(state: JobState) -> None:
    """Assign every rank, once enough workers are warm on every node."""
    if len(state.nodes) < state.spec.nodes:
        return
    chosen: list[Worker] = []
    for node in sorted(state.nodes.values(), key=lambda node: node.rank):
        warm = [w for w in state.idle(WorkerState.WARM) if w.node == node.name and not w.spare]
        if len(warm) < state.spec.workers_per_node:
            return
        chosen += warm[: state.spec.workers_per_node]
    state.store = chosen[0].store
    state.phase, state.settled = Phase.TRAINING, False
    for rank, worker in enumerate(chosen):
        give_rank(state, worker, rank, state.generation, state.store, newcomer=False)
        state.ranks[rank] = worker.name
        if state.incident is not None and any(lost.rank == rank for lost in state.incident.ranks):
            state.incident.assigned(rank, worker.name, state.now)


def start_anew(state: JobState, reason: str) -> None:
    """Nothing was done yet: end every holder and start the ranks again in a new generation."""
    if state.restarts >= state.spec.max_restarts:
        state.end(
            1,
            f"the job was started anew {state.restarts} times and lost a rank before its first transaction each time;"
            f" the last time: {reason}",
        )
        return
    state.restarts += 1
    state.generation = state.next_generation()
    state.tell(
        f"{reason} before the first transaction: all ranks start anew ({state.restarts} of at most "
        f"{state.spec.max_restarts} times)"
    )
    for worker in state.members():
        fence(state, worker, "the job starts anew")
    for worker in state.newcomers():
        give_back(state, worker, "the job starts anew")
    state.ranks.clear()
    state.recovery = state.migration = None
    state.cancel("quiesce", "hold", "resume", "communication")
    state.phase = Phase.FORMING
    if any(node.lost for node in state.nodes.values()):
        state.end(1, f"{reason} before the first transaction, and not all nodes are there to start anew")
        return
    _start_ranks(state)
    top_up(state)


def _start_ranks(state: JobState) -> None:
    for node in sorted(state.nodes.values(), key=lambda node: node.rank):
        for _ in range(state.spec.workers_per_node):
            start_worker(state, node, spare=False)


def _repeat(state: JobState, node: Node) -> None:
    """An agent connected again, and what was under way to its workers may be lost: say it again. Workers know by kind and
    generation what they have had.
    """
    recovery = state.recovery
    for worker in state.workers.values():
        if worker.node != node.name or worker.state is WorkerState.LOST:
            continue
        if worker.state is WorkerState.STARTING and worker.pid == 0:
            state.emit(StartWorker(node.name, worker.name, worker.spare))
        if worker.state is WorkerState.RELEASED:
            state.emit(Release(worker.name, 0))
        if worker.rank < 0 or worker.state is WorkerState.RELEASED:
            continue
        if worker.assign is not None and worker.heard < worker.assign.generation:
            state.emit(worker.assign)
        if state.migration is not None and worker.state is WorkerState.MEMBER:
            _publish(state, state.migration, worker)
        if recovery is not None and worker.name in recovery.sent and worker.committed < recovery.generation:
            message = recovery.sent[worker.name]
            if worker.name in recovery.waiting or not isinstance(message, Abort):
                state.emit(message)


def _publish(state: JobState, migration: Migration, worker: Worker) -> None:
    newcomer = state.workers[migration.newcomer]
    if migration.stage is Stage.PREPARING and newcomer.assign is not None:
        state.emit(Publish(worker.name, migration.generation, newcomer.assign.store, (migration.rank,)))

"""Who takes which rank, and the environment that comes with it.

Known limits: a spare is chosen by where it is and how loaded its node is; the history of nodes is not looked at. A
newcomer on another node gets a local rank that is free there.
"""

from __future__ import annotations

from understudy.core.nouns import JobSpec
from understudy.core.state import JobState, Worker, WorkerState

_HOLDING = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)


def spare_share(spec: JobSpec, node_rank: int) -> int:
    """The job's spares spread over its nodes, the first nodes get what is left over."""
    return spec.spares // spec.nodes + (1 if node_rank < spec.spares % spec.nodes else 0)


def choose_spare(state: JobState, rank: int) -> Worker | None:
    """The warm spare that takes `rank`: first one on the rank's own node, which keeps the rank's place among its local
    peers; if that node is lost, one outside its failure domain, where more may be about to fail; then one on the node that
    carries the fewest ranks; then the oldest. One on a tainted node only where the job has no other spare, not even one that warms.
    """
    idle = [worker for worker in state.idle(WorkerState.WARM, WorkerState.STARTING) if not state.nodes[worker.node].lost]
    trusted = [worker for worker in idle if not state.nodes[worker.node].taint]
    oldest: dict[str, Worker] = {}  # of each node: the others there are no better
    for worker in trusted or idle:
        if worker.state is WorkerState.WARM:
            oldest.setdefault(worker.node, worker)
    home = state.nodes[state.holder(rank).node] if rank in state.ranks else None

    def order(spare: Worker) -> tuple[bool, bool, int, int]:
        node = state.nodes[spare.node]
        away = home is None or node is not home
        doubtful = home is not None and home.lost and node.domain == home.domain
        return away, doubtful, len(_on(state, node.name)), _number(spare.name)

    return min(oldest.values(), key=order, default=None)


def local_rank(state: JobState, worker: Worker, rank: int) -> int:
    """The lost worker's local rank if it was on the same node, else the lowest that is free there."""
    old = state.holder(rank) if rank in state.ranks else None
    if old is not None and old.node == worker.node and old.local_rank >= 0:
        return old.local_rank
    used = {other.local_rank for other in _on(state, worker.node)}
    return next(number for number in range(len(used) + 1) if number not in used)


def environment(state: JobState, rank: int, local: int, store: str) -> dict[str, str]:
    """What torchrun gives its workers."""
    host, _, port = store.rpartition(":")
    spec = state.spec
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.workers_per_node),
        "GROUP_RANK": str(rank // spec.workers_per_node),
        "GROUP_WORLD_SIZE": str(spec.nodes),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(spec.world_size),
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": str(state.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": spec.job,
    }


def _on(state: JobState, node: str) -> list[Worker]:
    return [worker for worker in state.nodes[node].workers.values() if worker.state in _HOLDING]


def _number(name: str) -> int:
    return int(name[1:])

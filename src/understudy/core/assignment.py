"""Who takes which rank, and the environment that comes with it.

Known limits: a spare is chosen by where it is and how loaded its node is; the history of nodes is not looked at. A
newcomer on another node gets a local rank that is free there.
"""

from __future__ import annotations

from understudy.core.model import JobSpec
from understudy.core.state import JobState, Node, Worker
from understudy.core.transitions import WorkerState

NEAR = ("nvlink", "switch", "block")  # labels of nodes: those with the same value are near to each other
_HOLDING = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)


def spare_share(spec: JobSpec, node_rank: int) -> int:
    """Of the job's spares: those of a node without ranks; the others are spread over the nodes with ranks, the first get what is left."""
    if node_rank >= spec.nodes:
        return spec.workers_per_node
    spread = spec.spares - spec.spare_nodes * spec.workers_per_node
    return spread // spec.nodes + (1 if node_rank < spread % spec.nodes else 0)


def choose_spare(state: JobState, rank: int) -> Worker | None:
    """The warm spare that takes `rank`: one of the job's own before one on a claimed node; if the rank's node is lost or tainted, one
    outside its failure domain, where more may be about to fail; then one near to it in the network (`NEAR`); then one that is prepared
    for this rank; then one on the rank's own node, which keeps the rank's place among its local peers; then one on the node that carries
    the fewest ranks; then the oldest. One on a tainted node only where the job has no other spare, not even one that warms. Never one that
    is prepared for another rank, or for a place whose device is not trusted.
    """
    idle = [worker for worker in state.idle(WorkerState.WARM, WorkerState.STARTING) if not state.nodes[worker.node].lost]
    trusted = [worker for worker in idle if not state.nodes[worker.node].taint]
    best: dict[str, Worker] = {}  # of each node: the others there are no better
    for worker in trusted or idle:
        if worker.state is not WorkerState.WARM or (worker.prepare is not None and worker.prepare.rank != rank):
            continue
        if worker.prepare is not None and worker.local_rank in state.nodes[worker.node].tainted_places():
            continue
        if worker.node not in best or _behind(worker) < _behind(best[worker.node]):
            best[worker.node] = worker
    home = state.nodes[state.holder(rank).node] if rank in state.ranks else None

    def order(spare: Worker) -> tuple[bool, bool, int, int, bool, int, int]:
        node = state.nodes[spare.node]
        away = home is None or node is not home
        doubtful = home is not None and (home.lost or bool(home.taints)) and node.domain == home.domain
        return node.claim >= 0, doubtful, _far(node, home), _behind(spare), away, len(_on(state, node.name)), _number(spare.name)

    return min(best.values(), key=order, default=None)


def _far(node: Node, home: Node | None) -> int:
    """How many of the labels of places in the network say that the two are not in one."""
    return sum(node.labels[near] != home.labels[near] for near in NEAR if near in node.labels and near in home.labels) if home else 0


def _behind(spare: Worker) -> int:
    """0: it has been through the set-up; 1: it has that before it; 2: it is in the middle of it, and who knows how far."""
    if spare.prepare is None:
        return 1
    return 0 if spare.ready else 2


def local_rank(state: JobState, worker: Worker, rank: int) -> int:
    """The one for which a spare is prepared; the lost worker's if it was on the same node; else the lowest that is free there. Not one
    whose device is not trusted: a script goes to its device by this number.
    """
    if worker.prepare is not None:
        return worker.local_rank
    failed = state.nodes[worker.node].tainted_places()
    old = state.holder(rank) if rank in state.ranks else None
    if old is not None and old.node == worker.node and old.local_rank >= 0 and old.local_rank not in failed:
        return old.local_rank
    ahead = state.nodes[worker.node].idle(WorkerState.WARM, WorkerState.REHEARSING)
    used = {other.local_rank for other in [*_on(state, worker.node), *(other for other in ahead if other.prepare is not None)]}
    used |= failed
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

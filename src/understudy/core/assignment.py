"""Choose the worker that takes a rank, and build its environment.

Each row of this table decides among the spares that the rows above it have left (`choose_spare`):

| row         | a spare                                                                                                           |
|-------------|-------------------------------------------------------------------------------------------------------------------|
| *it could*  | is warm, on a node that is alive and has a place (`places.py`), and not prepared for another rank or a distrusted device |
| *trust*     | is on a node without a taint; on one with a taint only if no other node has a spare, not even a starting one, or none came |
| *together*  | is in the NVLink domain of the rank's group (`topology.py`), as long as a spare there may come, see below            |
| *whole*     | of a group without any worker left: is in an NVLink domain with spares for all of its ranks, or lacks the fewest     |
| *own*       | is the job's own before one on a claimed node                                                                       |
| *place*     | would have a local rank below `LOCAL_WORLD_SIZE`                                                                    |
| *away*      | if the rank's node is lost or tainted: is outside its failure domain, where more may be about to fail                |
| *near*      | differs in the fewest labels of places in the network (`NEAR`)                                                      |
| *prepared*  | has completed the set-up as this rank; then one that has not begun it; then one in the middle of it                  |
| *home*      | is on the rank's own node, which keeps the rank's place among its local peers                                        |
| *load*      | is on the node that carries the fewest ranks                                                                        |
| *age*       | is the oldest                                                                                                      |

*Together* is a rule, not a preference: a warm spare outside the domain is not taken while one inside may come, and the job waits for it.
One may come if a spare is warm or starting there, on nodes as trusted as *trust* requires. A spare that is prepared for another rank
counts: it is started over. If none can come, or none has come within the limit of every set-up, a spare outside takes the rank, with a
warning that names the group (`topology.GROUP_SPLIT`), because a slow group is better than no job. A spare that would be started only
because another one there was used does not count: it would share the device of the rank that the other one has taken.

If several ranks are vacant, those that can stay in their domain choose first (`serve`).

Known limits: the history of nodes is not considered. A newcomer on another node gets a local rank that is free there. The job does not wait
for a claimed node, because its NVLink domain is not known in advance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable

from understudy.core.model import JobSpec
from understudy.core.places import local_rank, with_places
from understudy.core.state import JobState, Node, Worker
from understudy.core.topology import NEAR, domain_of, nvlink_domain, splits
from understudy.core.transitions import WorkerState

_HOLDING = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
_IDLE = (WorkerState.WARM, WorkerState.STARTING)


def spare_share(spec: JobSpec, node_rank: int) -> int:
    """Return a node's share of the job's spares.

    A node without ranks gets its own; the others are spread over the nodes with ranks, and the first of these get the remainder.
    """
    if node_rank >= spec.nodes:
        return spec.workers_per_node
    spread = spec.spares - spec.spare_nodes * spec.workers_per_node
    return spread // spec.nodes + (1 if node_rank < spread % spec.nodes else 0)


def choose_spare(state: JobState, rank: int, taken: Container[str] = ()) -> Worker | None:
    """Return the warm spare that takes `rank`, by the table above; None if there is none, or if the job has to wait for one. `taken`: names
    of spares that other ranks are about to take.
    """
    pool, domain = [worker for worker in _trusted(state) if worker.name not in taken], held_to(state, rank)
    inside = [worker for worker in pool if nvlink_domain(state.nodes[worker.node]) == domain] if domain else pool
    return _best(state, rank, inside, taken)


def choose_anywhere(state: JobState, rank: int) -> Worker | None:
    """Return the warm spare that takes `rank` when the wait for spares is over.

    As `choose_spare` without the row *together*, and on a node with a taint if no other node has a warm spare.
    """
    idle = with_places(state, (worker for worker in state.idle(WorkerState.WARM) if not state.nodes[worker.node].lost))
    return _best(state, rank, _trusted(state)) or _best(state, rank, idle)


def held_to(state: JobState, rank: int) -> str:
    """Return the NVLink domain to which `rank` is limited now, because a spare may come there; "" if it may go anywhere."""
    domain = domain_of(state, rank)
    if not domain:
        return ""
    return domain if any(nvlink_domain(state.nodes[worker.node]) == domain for worker in _trusted(state)) else ""


def serve(state: JobState, ranks: Iterable[int], take: Callable[[int, Worker], None]) -> None:
    """Call `take` for each of these ranks that a warm spare can take now.

    Ranks that would leave their NVLink domain choose last, so that they take no spare that another group needs.
    """
    waiting = list(ranks)
    while waiting:
        left: list[int] = []
        outside: tuple[int, Worker] | None = None
        for rank in waiting:
            spare = choose_spare(state, rank)
            if spare is not None and not splits(state, rank, state.nodes[spare.node]):
                take(rank, spare)
                continue
            left.append(rank)
            if spare is not None and outside is None:
                outside = rank, spare
            if spare is None and not state.together and not any(worker.prepare for worker in state.idle(WorkerState.WARM)):
                return  # any spare can take any rank
        if len(left) == len(waiting):
            if outside is None:
                return
            take(*outside)
            left.remove(outside[0])
        waiting = left


def _trusted(state: JobState) -> list[Worker]:
    """Return spares that are warm or starting on live nodes with places for them; only those on nodes without a taint, if there are any."""
    idle = with_places(state, (worker for worker in state.idle(*_IDLE) if not state.nodes[worker.node].lost))
    return [worker for worker in idle if not state.nodes[worker.node].taints] or idle


def _best(state: JobState, rank: int, pool: list[Worker], taken: Container[str] = ()) -> Worker | None:
    """Return the best spare in `pool` that could take the rank."""
    best: dict[str, tuple[tuple[bool, int], Worker]] = {}  # for each node; the others there are not better
    for worker in pool:
        if worker.state is not WorkerState.WARM or (worker.prepare is not None and worker.prepare.rank != rank):
            continue
        if worker.prepare is not None and worker.local_rank in state.nodes[worker.node].tainted_places():
            continue
        local = local_rank(state, worker, rank, taken)
        if local < 0:
            continue
        key = state.spec.bounded_places and local >= state.spec.workers_per_node, _preparation_order(worker)
        if worker.node not in best or key < best[worker.node][0]:
            best[worker.node] = key, worker
    home = state.nodes[state.holder(rank).node] if rank in state.ranks else None
    wanted = _wanted(state, rank)
    room = Counter(nvlink_domain(state.nodes[worker.node]) for worker in _trusted(state)) if wanted else Counter[str]()

    def order(key: tuple[bool, int], spare: Worker) -> tuple[int, bool, bool, bool, int, int, bool, int, int]:
        node = state.nodes[spare.node]
        lacks = max(0, wanted - (room[nvlink_domain(node)] if nvlink_domain(node) else 0))
        away = home is None or node is not home
        doubtful = home is not None and (home.lost or bool(home.taints)) and node.domain == home.domain
        crowded, preparation = key
        near, load = _far(node, home), len(_on(state, node.name))
        return lacks, node.claim >= 0, crowded, doubtful, near, preparation, away, load, _number(spare.name)

    return min(((order(*one), one[1]) for one in best.values()), default=(None, None))[1]


def _wanted(state: JobState, rank: int) -> int:
    """Return how many spares an NVLink domain should have because the rank's group may move there as a whole; 0: this does not apply."""
    part = state.together.get(rank, ())
    home = nvlink_domain(state.nodes[state.holder(rank).node]) if rank in state.ranks else ""
    if not part or not home or domain_of(state, rank):
        return 0
    return sum(other in state.ranks and state.holder(other).state in (WorkerState.LOST, WorkerState.RELEASED) for other in part)


def _far(node: Node, home: Node | None) -> int:
    """Return how many of the labels of places in the network differ between the two nodes."""
    if home is None:
        return 0
    here, there = node.labels, home.labels
    return sum(here[near] != there[near] for near in NEAR if near in here and near in there)


def _preparation_order(spare: Worker) -> int:
    """Return 0 for a spare that has completed the set-up, 1 for one that has not begun it, 2 for one in the middle of it."""
    if spare.prepare is None:
        return 1
    return 0 if spare.ready else 2


def environment(state: JobState, rank: int, local: int, store: str) -> dict[str, str]:
    """Return the variables that torchrun gives its workers."""
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

"""Which spare takes a rank: the table of `assignment.py` as a slow definition, compared with the program on random clusters."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.assignment import choose_anywhere, choose_spare, held_to, serve
from understudy.core.commands import Prepare
from understudy.core.events import GroupsListed, RankGroup
from understudy.core.model import JobSpec, Timeouts
from understudy.core.state import DEVICE, JobState, Node, Taint, Worker
from understudy.core.topology import domain_of, listed, splits
from understudy.core.transitions import WorkerState

HOLDS = (WorkerState.MEMBER, WorkerState.NEWCOMER, WorkerState.LEAVING)
GONE = (WorkerState.LOST, WorkerState.RELEASED)

# -- the definition --------------------------------------------------------------------------------------------------------------


def defined(state: JobState, rank: int, without: str = "") -> str:
    """The name of the spare that takes the rank by the table; "" if none does. `without`: a row that is left out; both: trust and
    together."""
    left = [worker for worker in state.workers.values() if could_later(state, worker)]
    if without not in ("trust", "both"):
        left = [w for w in left if not state.nodes[w.node].taints] or left
    where = group_domain(state, rank) if without not in ("together", "both") else ""
    inside = [w for w in left if domain(state, w) == where]
    if where and inside:
        left = inside
    left = [w for w in left if could_now(state, w, rank)]
    for row, score in SCORES.items():
        if row != without:
            best = min((score(state, rank, w) for w in left), default=0)
            left = [w for w in left if score(state, rank, w) == best]
    return left[-1].name if left else ""


def could_later(state: JobState, worker: Worker) -> bool:
    node = state.nodes[worker.node]
    if worker.state not in (WorkerState.WARM, WorkerState.STARTING) or node.lost:
        return False
    return worker.prepare is not None or not is_bounded(state, node) or worker.name in with_place(state, node)


def with_place(state: JobState, node: Node) -> list[str]:
    """The spares on this bounded node that are prepared for nothing and have a place: warm ones first, then the oldest."""
    tainted = {taint.device for taint in node.device_taints.values()}
    there = [other for other in state.workers.values() if other.node == node.name]
    used = {other.local_rank for other in there if other.state in (*HOLDS, WorkerState.RELEASED)}
    used |= {other.local_rank for other in there if other.state is WorkerState.WARM and other.prepare}
    free = [number for number in range(node.room) if number not in used and node.devices.get(number, "-") not in tainted]
    spares = [other for other in there if other.state in (WorkerState.WARM, WorkerState.STARTING) and not other.prepare]
    order = sorted(spares, key=lambda spare: spare.state is WorkerState.STARTING)  # stable
    return [spare.name for spare in order[: len(free)]]


def is_bounded(state: JobState, node: Node) -> bool:
    return node.claim >= 0 or node.rank >= state.spec.nodes


def could_now(state: JobState, worker: Worker, rank: int) -> bool:
    if worker.state is not WorkerState.WARM:
        return False
    node = state.nodes[worker.node]
    device = node.devices.get(worker.local_rank, "")
    broken = any(taint.device == device for taint in node.device_taints.values())
    if worker.prepare is not None:
        return worker.prepare.rank == rank and not broken
    return local_rank(state, worker, rank) is not None


def local_rank(state: JobState, worker: Worker, rank: int) -> int | None:
    """With which it would take the rank; None: its node has no place for it."""
    if worker.prepare is not None:
        return worker.local_rank
    node, holder = state.nodes[worker.node], state.workers[state.ranks[rank]]
    tainted = {taint.device for taint in node.device_taints.values()}
    failed = {local for local, device in node.devices.items() if device in tainted}
    if holder.node == worker.node and holder.local_rank >= 0 and holder.local_rank not in failed:
        return holder.local_rank
    bounded = is_bounded(state, node)
    there = [other for other in state.workers.values() if other.node == worker.node]
    keeps = (*HOLDS, WorkerState.RELEASED) if bounded else HOLDS
    used = {other.local_rank for other in there if other.state in keeps or (other.prepare and other.state is WorkerState.WARM)}
    return next((number for number in range(node.room if bounded else 99) if number not in used | failed), None)


def domain(state: JobState, worker: Worker) -> str:
    return state.nodes[worker.node].labels.get("nvlink-domain", "")


def peers(state: JobState, rank: int) -> set[int]:
    """All ranks with which it is kept together, and it."""
    known, before = {rank}, set[int]()
    while known != before:
        before = set(known)
        for group in state.groups:
            if group.name in state.spec.keep_together and known & set(group.ranks):
                known |= set(group.ranks)
    return known


def group_domain(state: JobState, rank: int) -> str:
    others = [state.workers[state.ranks[other]] for other in peers(state, rank) - {rank}]
    places = [domain(state, other) for other in others if other.state not in GONE and domain(state, other)]
    home = domain(state, state.workers[state.ranks[rank]])
    if home in places:
        return home
    return max(sorted(set(places)), key=places.count, default="")


def lacking(state: JobState, rank: int, spare: Worker) -> int:
    home = domain(state, state.workers[state.ranks[rank]])
    if len(peers(state, rank)) < 2 or not home or group_domain(state, rank):
        return 0
    wanted = sum(state.workers[state.ranks[other]].state in GONE for other in peers(state, rank))
    pool = [w for w in state.workers.values() if could_later(state, w)]
    pool = [w for w in pool if not state.nodes[w.node].taints] or pool
    there = sum(domain(state, w) == domain(state, spare) for w in pool) if domain(state, spare) else 0
    return max(0, wanted - there)


def doubtful(state: JobState, rank: int, spare: Worker) -> int:
    home, node = state.nodes[state.workers[state.ranks[rank]].node], state.nodes[spare.node]
    return int((home.lost or bool(home.taints)) and home.domain == node.domain)


def far(state: JobState, rank: int, spare: Worker) -> int:
    home, node = state.nodes[state.workers[state.ranks[rank]].node].labels, state.nodes[spare.node].labels
    return sum(1 for label in ("nvlink-domain", "switch", "block") if home.get(label) and node.get(label) and home[label] != node[label])


def preparation(state: JobState, rank: int, spare: Worker) -> int:
    return 1 if spare.prepare is None else 0 if spare.ready else 2


SCORES: dict[str, Callable[[JobState, int, Worker], int]] = {
    "whole": lacking,
    "own": lambda state, rank, spare: int(state.nodes[spare.node].claim >= 0),
    "place": lambda state, rank, spare: int((local_rank(state, spare, rank) or 0) >= state.spec.workers_per_node),
    "away": doubtful,
    "near": far,
    "prepared": preparation,
    "home": lambda state, rank, spare: int(spare.node != state.workers[state.ranks[rank]].node),
    "load": lambda state, rank, spare: sum(w.node == spare.node and w.state in HOLDS for w in state.workers.values()),
    "age": lambda state, rank, spare: int(spare.name[1:]),
}

# -- random clusters -------------------------------------------------------------------------------------------------------------


def cluster(draw: random.Random) -> JobState:
    """A job in the middle of anything: ranks with and without workers, spares in every state, nodes with and without labels."""
    ranks = draw.choice((1, 2, 4, 6))
    keep = draw.choice(((), ("tp",), ("tp",), ("tp", "cp")))
    state = JobState(JobSpec("job", ranks, 1, nodes=ranks, spares=2, keep_together=keep), Timeouts())
    few, named = draw.random() < 0.5, draw.choice((0.9, 0.5))
    for number in range(draw.randint(2, 5)):
        labels = {"nvlink-domain": draw.choice("ab"), "switch": draw.choice("st"), "block": draw.choice("xy")}
        known = {name: value for name, value in labels.items() if draw.random() < (named if name == "nvlink-domain" else 0.4)}
        node = Node(
            f"n{number}", "h", number, draw.choice((0, 0, 1, 2)), draw.choice(("rack", f"n{number}")), draw.randint(0, 4), given=known
        )
        node.lost = draw.random() < 0.2
        node.claim = draw.choice((-1, -1, -1, number))
        if draw.random() < 0.2:
            node.taints[DEVICE, ""] = Taint(DEVICE, "errors of several devices")
        if draw.random() < 0.2:
            node.devices = {0: "gpu0", 1: "gpu1"}
            node.device_taints[DEVICE, "gpu0"] = Taint(DEVICE, "errors", "gpu0", device="gpu0")
        state.nodes[node.name] = state.places[number] = node
    for rank in range(ranks):
        found = enlist(state, draw, draw.choice((*HOLDS, WorkerState.MEMBER, WorkerState.LOST, WorkerState.LOST, WorkerState.RELEASED)))
        found.rank, found.local_rank = rank, draw.randint(0, 2)
        state.ranks[rank] = found.name
    for _ in range(draw.randint(0, 5)):
        spare = enlist(state, draw, draw.choice((WorkerState.WARM, WorkerState.WARM, WorkerState.WARM, WorkerState.STARTING)))
        spare.spare, spare.local_rank = draw.random() < 0.9, draw.randint(0, 1)
        if spare.state is WorkerState.WARM and draw.random() < (0.1 if few else 0.4):
            spare.prepare, spare.ready = Prepare(spare.name, 0, draw.randrange(ranks), "h:1", {}), draw.random() < 0.5
    whole = list(range(ranks))
    size = draw.choice((1, 2, ranks))
    groups = [RankGroup("tp", tuple(whole[first : first + size])) for first in range(0, ranks, size)]
    groups += [RankGroup("cp", tuple(whole[first::2])) for first in range(min(2, ranks))]
    listed(state, GroupsListed("w0", 1, tuple(groups)))
    return state


def enlist(state: JobState, draw: random.Random, which: WorkerState) -> Worker:
    worker = Worker(f"w{state.started}", draw.choice(list(state.nodes)), spare=False, state=which)
    if which in HOLDS and state.nodes[worker.node].lost:
        worker.state = WorkerState.LOST
    state.started += 1
    state.workers[worker.name] = worker
    if which in (WorkerState.WARM, WorkerState.STARTING):
        state.unassigned[worker.name] = worker
    if worker.state is not WorkerState.LOST:
        state.nodes[worker.node].workers[worker.name] = worker
    return worker


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_choice_follows_the_table(seed: int) -> None:
    state = cluster(random.Random(seed))
    for rank in state.ranks:
        found = choose_spare(state, rank)
        assert (found.name if found is not None else "") == defined(state, rank)
        anywhere = choose_anywhere(state, rank)
        outside = defined(state, rank, without="together") or defined(state, rank, without="both")
        assert (anywhere.name if anywhere is not None else "") == outside


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 40))
def test_no_group_is_split_while_a_spare_inside_may_come(seed: int) -> None:
    """The hard rule, written independently of the table."""
    state = cluster(random.Random(seed))
    for rank in state.ranks:
        found, where = choose_spare(state, rank), domain_of(state, rank)
        if found is None or not where or domain(state, found) == where:
            continue
        doubted = bool(state.nodes[found.node].taints)
        for worker in state.workers.values():
            node = state.nodes[worker.node]
            comes = could_later(state, worker) and domain(state, worker) == where
            assert not comes or (node.taints and not doubted), f"{worker.name} may come, and {found.name} is taken"


@pytest.mark.parametrize("row", ["trust", "together", *SCORES])
def test_every_row_decides_something(row: str) -> None:
    """Else the comparison above would not notice if the program left it out."""
    for seed in range(3000):
        state = cluster(random.Random(seed))
        if any(defined(state, rank) != defined(state, rank, without=row) for rank in state.ranks):
            return
    raise AssertionError(row)


# -- several at a time -----------------------------------------------------------------------------------------------------------


def racks(spares: dict[str, str], ranks: int = 4, size: int = 2) -> JobState:
    """Rank r is on node n<r>, in rack a, b, ... by groups of `size`. `spares`: the rack of each node with a spare."""
    state = JobState(JobSpec("job", ranks, 1, nodes=ranks, spares=0, keep_together=("tp",)), Timeouts())
    for rank in range(ranks):
        state.nodes[f"n{rank}"] = Node(f"n{rank}", "h", rank, 0, f"n{rank}", given={"nvlink-domain": "abcd"[rank // size]})
        worker = Worker(f"w{rank}", f"n{rank}", spare=False, state=WorkerState.MEMBER, rank=rank)
        state.workers[worker.name] = state.nodes[worker.node].workers[worker.name] = worker
        state.ranks[rank] = worker.name
    for number, (node, rack) in enumerate(spares.items(), ranks):
        state.nodes[node] = Node(node, "h", number, 0, node, 1, given={"nvlink-domain": rack})
        worker = Worker(f"w{number}", node, spare=True, state=WorkerState.WARM)
        state.workers[worker.name] = state.unassigned[worker.name] = state.nodes[node].workers[worker.name] = worker
    groups = tuple(RankGroup("tp", tuple(range(first, first + size))) for first in range(0, ranks, size))
    listed(state, GroupsListed("w0", 1, groups))
    return state


def served(state: JobState, *ranks: int) -> dict[int, str]:
    """Loses these ranks; by rank, the node on which it is then."""
    taken = {}
    for rank in ranks:
        state.set_worker_state(state.holder(rank), WorkerState.LOST)

    def take(rank: int, spare: Worker) -> None:
        spare.rank, state.ranks[rank] = rank, spare.name
        state.set_worker_state(spare, WorkerState.NEWCOMER)
        taken[rank] = spare.node

    serve(state, ranks, take)
    return taken


def test_a_rank_that_leaves_its_rack_takes_no_spare_that_another_group_needs() -> None:
    state = racks({"a9": "a", "b9": "b", "c9": "c"}, ranks=6)
    assert served(state, 0, 2, 4) == {0: "a9", 2: "b9", 4: "c9"}
    state = racks({"b9": "b", "c9": "c"})
    assert served(state, 0, 2) == {0: "c9", 2: "b9"}, "rank 0 is first, and older is b9"


def test_a_group_that_is_lost_as_a_whole_moves_as_a_whole() -> None:
    state = racks({"c9": "c", "d8": "d", "d9": "d"})
    assert served(state, 0, 1) == {0: "d8", 1: "d9"}


def test_ranks_that_do_not_fit_into_their_rack_go_elsewhere_when_it_has_no_spare_left() -> None:
    state = racks({"b8": "b", "b9": "b", "a9": "a"}, ranks=4, size=4)
    assert served(state, 0, 1) == {0: "a9", 1: "b8"}
    assert splits(state, 1, state.nodes["b8"]) and held_to(state, 1) == ""

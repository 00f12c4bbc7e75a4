"""What a loss would do is what it does: the forecast is compared with the machine, which then loses the nodes."""

from __future__ import annotations

import copy
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.forecast import Succession, forecast
from understudy.core.model import JobSpec
from understudy.core.topology import splits


def job_of(draw: random.Random) -> Job:
    """A job in plain training: racks, groups, spares on nodes with and without ranks, some of which start or were used."""
    per_node, nodes = draw.choice(((1, 2), (1, 4), (2, 2), (2, 3)))
    world = per_node * nodes
    kept = draw.choice(((), ("tp",), ("tp",)))
    spec = JobSpec("job", world, per_node, nodes=nodes, spares=0, keep_together=kept, replenish=draw.random() < 0.5)
    job = Job(spec, forming=True, spares=dict.fromkeys(range(nodes), 0))
    for node in job.machine.state.nodes.values():
        node.given = {"nvlink-domain": draw.choice("ab")}
        node.spares = node.room = draw.choice((0, 0, 1, 2))
    for number in range(nodes, nodes + draw.randint(0, 3)):
        labels = (("nvlink-domain", draw.choice("abc")), ("switch", draw.choice("st")))
        job.submit(events.NodeJoined(f"n{number}", "h", number, draw.choice(("", "rack")), draw.randint(1, 3), None, labels))
    job.submit(events.NodeTainted("n0", "for a moment"))
    job.submit(events.NodeTainted("n0", ""))
    job.warm()
    job.commit(0)
    size = draw.choice((2, world))
    groups = tuple(events.RankGroup("tp", tuple(range(first, first + size))) for first in range(0, world, size))
    job.submit(events.GroupsListed("w0", 1, groups))
    for _ in range(draw.choice((0, 0, 1))):
        spares = [worker.name for worker in job.machine.state.unassigned.values()]
        job.lose(*spares[: draw.randint(0, 2)])
    return job


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40))
def test_a_forecast_comes_true_and_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    job = job_of(draw)
    state = job.machine.state
    names = draw.sample(sorted(state.nodes), draw.choice((1, 1, 2)))
    before = copy.deepcopy(state)
    said = forecast(state, names)
    assert state == before
    lost = [rank for rank, name in state.ranks.items() if state.workers[name].node in names]
    assert [one.rank for one in said.ranks] == lost
    answer = job.submit(events.NodesLost(tuple(events.LostNode(name, "gone") for name in names)))
    if state.restarts or len(lost) == state.spec.world_size:
        return
    given_out = {one.rank: one.worker for one in of(commands.Assign, answer)}
    assert {one.rank: one.worker for one in said.ranks if one.worker} == given_out
    assert all(one.node == state.workers[one.worker].node for one in said.ranks if one.worker)
    vacant = [one.rank for one in said.ranks if not one.worker]
    assert state.vacant() == vacant


def test_a_forecast_names_groups_that_would_be_split_and_what_is_still_to_come() -> None:
    spec = JobSpec("job", 2, 1, nodes=2, spares=0, keep_together=("tp",), replenish=False)
    job = Job(spec, spares={0: 0, 1: 0, 2: 1, 3: 1})
    nodes = job.machine.state.nodes
    for name, rack in zip(nodes, "aabb", strict=True):
        nodes[name].given = {"nvlink-domain": rack}
    job.submit(events.GroupsListed("w0", 1, (events.RankGroup("tp", (0, 1)),)))
    assert forecast(job.machine.state, ["n0"]).ranks == (Succession(0, "w2", "n2", True),)
    both = forecast(job.machine.state, ["n0", "n1"])
    assert [(one.rank, one.node, one.splits) for one in both.ranks] == [(0, "n2", False), (1, "n3", False)], "it moves as a whole"
    assert forecast(job.machine.state, ["n0", "n2", "n3"]).ranks == (Succession(0, "", "", False),)
    assert [forecast(job.machine.state, names).coming for names in (["n0"], ["n2"], ["n0", "n2", "n3"])] == [1, 1, 0]
    assert not splits(job.machine.state, 0, nodes["n1"])

"""Nodes without ranks that a job brings with it, each with a spare for every rank that a node has."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, of
from tests.message_texts import refused

from understudy.core import commands, events
from understudy.core.assignment import spare_share
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.messages import forming


@pytest.mark.parametrize(
    ("spares", "spare_nodes", "shares"),
    [
        (0, 0, [0, 0, 0]),
        (3, 0, [1, 1, 1]),
        (4, 0, [2, 1, 1]),
        (2, 1, [0, 0, 0, 2]),
        (4, 1, [1, 1, 0, 2]),
        (8, 2, [2, 1, 1, 2, 2]),
    ],
)
def test_whose_spares_are_where(spares: int, spare_nodes: int, shares: list[int]) -> None:
    spec = JobSpec("job", 6, 2, nodes=3, spares=spares, spare_nodes=spare_nodes)
    assert [spare_share(spec, rank) for rank in range(3 + spare_nodes)] == shares and sum(shares) == spares


@pytest.mark.parametrize(("spares", "spare_nodes"), [(1, 1), (3, 2), (0, 1), (4, -1)])
def test_more_of_them_than_there_are_spares_for_are_refused(spares: int, spare_nodes: int) -> None:
    with refused(ValueError, forming.SPARE_NODES, spare_nodes=spare_nodes, workers_per_node=2, spares=spares):
        Machine(JobSpec("job", 2, 2, spares=spares, spare_nodes=spare_nodes), Timeouts())


def test_training_begins_without_them_and_they_join_when_they_come() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, spare_nodes=1))
    assert len(job.machine.state.workers) == 4 and job.machine.state.all_committed
    said = job.submit(events.NodeJoined("n2", "h2", 2))
    assert [start.node for start in of(commands.StartWorker, said)] == ["n2", "n2"]


@pytest.mark.parametrize(("rank", "taken"), [(2, True), (3, False), (-1, False), (1, False)])
def test_only_so_many_join(rank: int, taken: bool) -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, spare_nodes=1))
    said = job.submit(events.NodeJoined("n9", "h9", rank))
    assert ("n9" in job.machine.state.nodes) is taken
    assert (forming.NODE_RANK_TAKEN(node="n9", node_rank=rank) in [line.text for line in of(commands.Tell, said)]) is not taken


def test_one_of_them_takes_over_a_whole_node() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=2, spare_nodes=1), spares={2: -1})
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    assert [job.node_of(job.machine.state.ranks[rank]) for rank in range(4)] == ["n0", "n0", "n2", "n2"]

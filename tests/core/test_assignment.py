"""Which spare takes a rank, which local rank comes with it, and where new spares go."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, moving, of

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_newcomer_on_the_lost_ones_node_takes_over_its_local_rank(rank: int) -> None:
    job = Job(JobSpec("job", 3, 3, spares=1))
    found = assigned(job.lose(f"w{rank}"))
    assert (found.rank, found.environment["LOCAL_RANK"]) == (rank, str(rank))


@pytest.mark.parametrize("lost", ["w0 w3", "w1 w2"])
def test_a_newcomer_on_another_node_takes_the_lowest_local_rank_that_is_free_there(lost: str) -> None:
    """Two nodes with two ranks each and a node of spares: there nothing is taken yet, and then 0 is, and then 0 and 1 are."""
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0), spares={2: 3})
    first, second = (assigned(job.lose(worker)) for worker in lost.split())
    assert [(job.node_of(one.worker), one.environment["LOCAL_RANK"]) for one in (first, second)] == [("n2", "0"), ("n2", "1")]
    third = assigned(job.lose(first.worker))
    assert third.environment["LOCAL_RANK"] == "0", "its predecessor's, on the same node"


def test_a_spare_on_the_ranks_own_node_comes_first_and_then_the_least_loaded_node() -> None:
    job = Job(JobSpec("job", 4, 2, nodes=2, spares=0), spares={0: 1, 1: 1, 2: 1})
    at_home, empty, last = assigned(job.lose("w2")), assigned(job.lose("w3")), assigned(job.lose("w1"))
    assert [job.node_of(one.worker) for one in (at_home, empty)] == ["n1", "n2"], "the node with spares only carries no rank"
    assert job.node_of(last.worker) == "n0"


def test_spares_that_wait_are_no_load() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={0: 1, 1: 0, 2: 3})
    assert job.node_of(assigned(job.lose("w1")).worker) == "n2"


def test_after_the_loss_of_a_node_spares_outside_its_domain_come_first() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), domains=("rack", "b", "rack", "b"), spares={2: 1, 3: 1})
    found = assigned(job.submit(events.NodesLost((events.LostNode("n0", "silent"),))))
    assert job.node_of(found.worker) == "n3"


def test_a_rank_of_a_node_that_is_there_does_not_shun_its_domain() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), domains=("rack", "b", "rack", "b"), spares={2: 1, 3: 1})
    assert job.node_of(assigned(job.lose("w0")).worker) == "n2", "the oldest of equals"


def test_a_job_whose_only_node_is_tainted_still_gets_its_spares_there() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.NodeTainted("n0", "a GPU reports errors"))
    (new,) = of(commands.StartWorker, job.lose("w2"))
    assert (new.node, new.spare) == ("n0", True)
    job.warm()
    assert assigned(job.lose("w0")).worker == new.worker


def test_a_tainted_node_gets_no_spare_while_another_is_trusted() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.submit(events.NodeTainted("n0", "a GPU reports errors"))
    assert of(commands.StartWorker, job.lose("w2")) == [], "w2 was the spare on n0"
    (after,) = of(commands.StartWorker, job.submit(events.NodeTainted("n0", "")))
    assert after.node == "n0", "trusted again: what is missing there is started"
    job.submit(events.NodeTainted("n0", "once more"))
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    job.warm()
    said = of(commands.StartWorker, job.lose(after.worker))
    assert [command.node for command in said] == ["n0"], "the only trusted node is lost"


def test_a_spare_on_a_tainted_node_takes_a_rank_only_where_no_other_is_left() -> None:
    job = Job(JobSpec("job", 3, 1, nodes=3, spares=2, replenish=False))
    job.submit(events.NodeTainted("n0", "loud"))
    assert job.node_of(assigned(job.lose("w0")).worker) == "n1"
    assert job.node_of(assigned(job.lose("w1")).worker) == "n0"


def test_a_spare_on_a_trusted_node_that_warms_is_waited_for() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=2))
    job.submit(events.NodeTainted("n0", "loud"))
    job.lose("w3")  # the spare on n1; the one that takes its place starts
    assert of(commands.Assign, job.lose("w0")) == []
    assert job.node_of(assigned(job.warm()).worker) == "n1"


def test_spares_are_spread_over_the_nodes() -> None:
    job = Job(JobSpec("job", 3, 1, nodes=3, spares=5))
    spares = [worker.node for worker in job.machine.state.workers.values() if worker.spare]
    assert sorted(spares) == ["n0", "n0", "n1", "n1", "n2"]


def test_its_own_local_rank_and_not_the_lowest_that_is_free() -> None:
    """Rank 1 has moved to another node, and its local rank is free when rank 3 is lost."""
    job = Job(JobSpec("job", 4, 4, spares=0), spares={0: 1, 1: 1})
    job.submit(events.NodeTainted("n0", "loud"))
    moved = moving(job, 1)
    job.submit(events.NodeTainted("n0", ""))
    job.verify()
    job.commit(1)
    assert job.node_of(moved) == "n1" and job.machine.state.ranks[1] == moved
    job.warm()
    found = assigned(job.lose("w3"))
    assert (job.node_of(found.worker), found.environment["LOCAL_RANK"]) == ("n0", "3")


def test_the_domain_of_a_tainted_node_is_shunned_too() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0), domains=("rack", "b", "rack", "b"), spares={2: 1, 3: 1})
    found = assigned(job.submit(events.NodeTainted("n0", "about to fail", "nvml", leave=True)))
    assert job.node_of(found.worker) == "n3"


def placed(*labels: dict[str, str]) -> Job:
    """A job on the first two nodes; each of the others has a spare."""
    job = Job.__new__(Job)
    job.now, job.machine = 0.0, Machine(JobSpec("job", 2, 1, nodes=2, spares=0), Timeouts())
    for number, given in enumerate(labels):
        job.submit(events.NodeJoined(f"n{number}", f"h{number}", number, "", 0 if number < 2 else 1, None, tuple(given.items())))
    job.warm()
    job.commit(0)
    return job


@pytest.mark.parametrize(
    ("third", "fourth", "taken"),
    [
        ({"switch": "s2"}, {"switch": "s1"}, "n3"),
        ({"switch": "s1"}, {"switch": "s1"}, "n2"),
        ({}, {"switch": "s1"}, "n2"),  # nothing is known against it
        ({"switch": "s2", "block": "b1"}, {"switch": "s2", "block": "b2"}, "n2"),
        ({"colour": "red"}, {"colour": "blue"}, "n2"),
    ],
)
def test_of_spares_elsewhere_one_near_in_the_network_comes_first(third: dict[str, str], fourth: dict[str, str], taken: str) -> None:
    home = {"switch": "s1", "block": "b1", "colour": "blue"}
    job = placed(home, home, third, fourth)
    assert job.node_of(assigned(job.lose("w0")).worker) == taken

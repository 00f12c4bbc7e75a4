"""Nodes that go back to the scheduler, as the machine has it."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, of

from understudy.core import commands, events
from understudy.core.drain import releasable
from understudy.core.model import JobSpec
from understudy.core.transitions import RefusalReason
from understudy.messages import moves

LEFT = events.NodeReleased("n2")
REFUSED = "NodeReleased"


def job_of() -> Job:
    """Two nodes with a rank, and one with two spares."""
    return Job(JobSpec("job", 2, 1, nodes=2, spares=0), spares={2: 2})


def leave(job: Job, name: str = "n2", leaves: bool = True, until: float = 0.0) -> list[commands.Command]:
    return job.submit(events.NodeTainted(name, "loud", "nvml", leave=leaves, until=until))


def lose_node(job: Job, name: str) -> list[commands.Command]:
    return job.submit(events.NodesLost((events.LostNode(name, "silent"),)))


def may(job: Job, name: str = "n2") -> bool:
    state = job.machine.state
    return releasable(state, state.nodes[name])


def test_a_node_that_is_left_for_good_may_go_and_one_in_use_not() -> None:
    job = job_of()
    assert not may(job)
    leave(job)
    assert may(job)


@pytest.mark.parametrize(("leaves", "until"), [(False, 0.0), (True, 1e9)])
def test_one_that_is_not_left_or_not_for_good_stays(leaves: bool, until: float) -> None:
    job = job_of()
    leave(job, leaves=leaves, until=until)
    assert not may(job)
    job.submit(LEFT)
    assert not job.machine.state.nodes["n2"].gone and job.machine.state.refused[REFUSED, RefusalReason.STATE] == 1


def test_one_is_refused_while_a_rank_is_there_or_moves() -> None:
    job = job_of()
    leave(job, "n0")
    assert job.machine.state.migration is not None and not may(job, "n0")
    assert job.submit(events.NodeReleased("n0")) == [] and job.machine.state.refused[REFUSED, RefusalReason.STATE] == 1
    leave(job)
    assert not may(job), "a rank may be on its way there"


def test_one_is_refused_in_a_recovery_unless_it_is_lost() -> None:
    job = job_of()
    leave(job)
    job.lose("w0")
    assert not may(job)
    lose_node(job, "n2")
    assert may(job)


def test_an_unknown_or_released_node_is_ignored() -> None:
    job = job_of()
    leave(job)
    job.submit(events.NodeReleased("n9"))
    job.submit(LEFT)
    assert job.submit(LEFT) == []
    assert job.machine.state.refused[REFUSED, RefusalReason.UNKNOWN] == 1 and job.machine.state.refused[REFUSED, RefusalReason.STATE] == 1


def test_its_spares_end_and_are_not_started_again() -> None:
    job = job_of()
    leave(job)
    said = job.submit(LEFT)
    assert [kill.worker for kill in of(commands.KillWorker, said)] == ["w2", "w3"]
    assert [line.text for line in of(commands.Tell, said)][-1] == moves.GIVEN_BACK(node="n2")
    later = [*job.lose("w2", "w3"), *leave(job, leaves=True, until=1.0), *job.submit(events.NodeTainted("n2", "", "nvml"))]
    assert of(commands.StartWorker, later) == []


def test_one_that_is_lost_goes_without_a_message() -> None:
    job = job_of()
    lose_node(job, "n2")
    assert of(commands.Tell, job.submit(LEFT)) == [] and job.machine.state.nodes["n2"].gone


@pytest.mark.parametrize("workers", [None, (), ("w2", "w3")])
def test_it_does_not_join_again(workers: tuple[str, ...] | None) -> None:
    job = job_of()
    leave(job)
    job.submit(LEFT)
    said = job.submit(events.NodeJoined("n2", "h2", 2, spares=2, workers=workers))
    assert of(commands.StartWorker, said) == [] and job.machine.state.nodes["n2"].lost
    job.lose("w0")
    assert all(job.node_of(each.worker) != "n2" for each in of(commands.Assign, job.warm()))


def test_a_rank_does_not_go_to_what_was_given_back() -> None:
    job = job_of()
    leave(job)
    job.submit(LEFT)
    assert of(commands.Assign, job.lose("w0")) == []


def test_a_claimed_node_is_given_back_by_its_claim() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0, floating=1))
    lose_node(job, "n1")
    job.submit(events.NodeJoined("n7", "h7", 7, spares=1, claim=0))
    lose_node(job, "n7")
    assert not may(job, "n7")
    job.submit(events.NodeReleased("n7"))
    assert job.machine.state.refused[REFUSED, RefusalReason.STATE] == 1

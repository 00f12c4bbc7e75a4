"""Losses, and what may turn out to be one, where a scenario would assert more than is meant."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, of

from understudy.core import commands, events
from understudy.core.model import JobSpec, LossCause
from understudy.core.state import DEVICE


def test_communication_that_broke_is_explained_by_the_loss_of_one_that_had_finished() -> None:
    """No timer is waited for: others stand still because of it."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.Finished("w1", 0, 1))
    job.submit(events.CommunicationBroken("w0", 0, "reset"))
    said = job.lose("w1")
    assert [command.worker for command in of(commands.Abort, said)] == ["w0"] and assigned(said).rank == 1


@pytest.mark.parametrize(("cause", "doubted"), [(LossCause.DEVICE, {(DEVICE, "gpu1")}), (LossCause.KILLED, set())])
def test_a_device_is_doubted_if_it_is_the_cause_of_the_loss(cause: LossCause, doubted: set[tuple[str, str]]) -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.UsesDevice("w1", "gpu1"))
    job.submit(events.WorkerLost("w1", cause, "its device is hot", job.now))
    assert set(job.machine.state.nodes["n0"].device_taints) == doubted


def on_a_claimed_node(*, replenish: bool = True) -> Job:
    """Rank 1 is on node n7, which was claimed for it."""
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=0, floating=1, replenish=replenish))
    job.submit(events.NodesLost((events.LostNode("n1", "silent"),)))
    job.submit(events.NodeJoined("n7", "h7", 7, spares=1, claim=0))
    job.warm(), job.rest(), job.verify(), job.commit(1)
    assert job.machine.state.holder(1).node == "n7"
    return job


def test_a_node_whose_claim_is_over_may_join_as_one_of_the_jobs_own() -> None:
    job = on_a_claimed_node()
    job.submit(events.ClaimEnded(0, "preempted"))
    assert job.machine.state.nodes["n7"].gone
    said = job.submit(events.NodeJoined("n7", "h7", 7, spares=1))
    assert [start.node for start in of(commands.StartWorker, said)] == ["n7"]
    assert job.machine.state.nodes["n7"].claim == -1 and not job.machine.state.nodes["n7"].lost


def test_a_claimed_node_that_restarts_and_can_have_no_spare_is_given_back_and_not_taken_in_again() -> None:
    job = on_a_claimed_node(replenish=False)
    said = job.submit(events.NodeJoined("n7", "h7", 7, spares=1, workers=(), claim=0))
    assert of(commands.GiveBackNode, said)[0] == commands.GiveBackNode(0, "n7")
    assert not of(commands.StartWorker, said) and job.machine.state.nodes["n7"].lost

"""Real Slurm: a node of a job goes, and the job trains on, bit by bit as if nothing had happened. Afterwards nothing of it is left."""

from __future__ import annotations

import pytest

from tests.integration.training import Outcome, survived
from tests.message_texts import has
from tests.slurm.cluster import Cluster, needs_slurm
from tests.slurm.submitted import Submitted
from understudy.messages import starting

pytestmark = [needs_slurm, pytest.mark.timeout(600)]
HELD = 6  # the step in which a rank waits while the test disturbs its node


def test_a_job_that_nothing_happens_to(slurm: Cluster, undisturbed: Outcome) -> None:
    job = Submitted(slurm)
    outcome = job.ends()
    survived(outcome, undisturbed, losses=0)
    assert job.comment() == "(null)"
    assert has(outcome.output, starting.ALLOCATION, nodes="5 nodes", orchestrators="; orchestrators on n1, n2, n3")
    job.nothing_is_left()


FIRST = pytest.param(0, id="the first node, with the batch script, rank 0 and the leader")


@pytest.mark.parametrize("rank", [pytest.param(2, id="a node"), FIRST])
def test_a_node_that_loses_its_power(slurm: Cluster, undisturbed: Outcome, rank: int) -> None:
    """With slurmd, steps and all. Of the first one Slurm can only report that its job was cancelled, which we do when it is over."""
    node = f"n{rank + 1}"
    job = Submitted(slurm, HELD=f"{rank}:{HELD}", options=("--comment=mine",))
    job.wait_for(f"held {HELD}")
    slurm.nodes[node].off()
    outcome = job.ends("n2", state="CANCELLED" if rank == 0 else "COMPLETED")
    (incident,) = survived(outcome, undisturbed)
    assert (incident["cause"], incident["rank"]) == ("node", rank)
    assert job.comment() == f"mine | understudy: rank {rank} of {node} on n5; lost {node}; 1 incident; ended with exit code 0"
    job.nothing_is_left()

"""Real Slurm: nodes that a job asks for when it needs them, taken from a job that may be preempted, and gives back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.processes import wait_until
from tests.integration.training import LONG
from tests.slurm.cluster import Cluster, cluster, needs_slurm
from tests.slurm.submitted import Steady

pytestmark = [needs_slurm, pytest.mark.timeout(600)]


def spares(slurm: Cluster) -> list[list[str]]:
    """State, node and comment of the jobs of floating spares that are not over."""
    lines = slurm.run("root", "squeue", "--noheader", "--name=understudy-spare", "--format=%T|%N|%k").splitlines()
    return [line.split("|") for line in lines]


def test_a_node_is_taken_from_a_job_that_may_be_preempted_and_given_back(slurm: Cluster) -> None:
    """Bob's job has all other nodes. Alice's job loses one and has no spare: Slurm takes one from Bob until its end."""
    policy = slurm.home("alice") / "policy.toml"
    policy.write_text('[trust]\ncheck = false\nreturn_home = true\nafter = "1s"\n')
    job = Steady(slurm, "--floating-spares", "1", "--policy", str(policy), nodes=4, spare_nodes=0)
    job.trains()
    bobs = slurm.run(
        "bob", "sbatch", "--parsable", "--partition=scavenge", "--nodes=2", "--exclusive", "--requeue", "--wrap=sleep inf"
    ).strip()
    wait_until(lambda: "R" in slurm.run("root", "squeue", "--noheader", f"--jobs={bobs}", "--format=%t"), "Bob's job", LONG)
    slurm.nodes["n3"].off()
    job.wait_until(lambda: job.node_of(2) in ("n5", "n6"), "rank 2 on a node that was Bob's")
    job.goes_on()
    job.wait_until(lambda: "rank 2 on n" in str(spares(slurm)), "the rank, in the spare's comment")
    ((state, node, comment),) = spares(slurm)
    assert (state, node) == ("RUNNING", job.node_of(2))
    assert comment == f"understudy: spare of slurm-{job.number}.0, claim 0; slurm-{job.number}.0: rank 2 on {node}"
    (incident,) = job.ends_as_undisturbed()
    assert (incident["cause"], incident["rank"]) == ("node", 2)
    wait_until(lambda: not spares(slurm), "no spare", LONG)
    job.nothing_is_left()


def test_a_drained_node_serves_again_and_its_rank_comes_home(slurm: Cluster) -> None:
    """A node is drained, and the job has no spare: one is claimed. The drain is taken back, the rank goes home, and so does Bob's node."""
    policy = slurm.home("alice") / "policy.toml"
    rule = '[[rule]]\nname = "drains"\ndetector = "slurm"\nseverity = ["suspect"]\naction = "leave"\n'
    policy.write_text(f'[trust]\ncheck = false\nreturn_home = true\nafter = "1s"\n{rule}')
    job = Steady(slurm, "--floating-spares", "1", "--policy", str(policy), nodes=4, spare_nodes=0)
    job.trains()
    bobs = slurm.run(
        "bob", "sbatch", "--parsable", "--partition=scavenge", "--nodes=2", "--exclusive", "--requeue", "--wrap=sleep inf"
    ).strip()

    def runs() -> bool:
        return slurm.run("root", "squeue", "--noheader", f"--jobs={bobs}", "--format=%t").strip() == "R"

    wait_until(runs, "Bob's job", LONG)
    slurm.run("root", "scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=patch")
    job.wait_until(lambda: job.node_of(2) in ("n5", "n6"), "rank 2 on a node that was Bob's")
    assert not runs()
    slurm.run("root", "scontrol", "update", "NodeName=n3", "State=RESUME")
    job.wait_until(lambda: job.node_of(2) == "n3", "rank 2 at home")
    job.wait_until(lambda: not spares(slurm), "the node given back")
    wait_until(runs, "Bob's job, again", LONG)
    job.goes_on()
    assert [incident["planned"] for incident in job.ends_as_undisturbed()] == [True, True]
    slurm.run("bob", "scancel", bobs)
    job.nothing_is_left()


def test_a_job_of_one_node_that_loses_a_worker(slurm: Cluster) -> None:
    """Four ranks on one node, no spare. The rank goes to a claimed node, and trains from there with those that stay."""
    job = Steady(slurm, "--floating-spares", "1", "--nproc-per-node", "4", nodes=1, spare_nodes=0)
    job.trains()
    slurm.nodes["n1"].signal("alice", "--worker w2", signal.SIGKILL)
    job.wait_until(lambda: job.node_of(2) not in ("", "n1"), "rank 2 elsewhere")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert (incident["cause"], incident["rank"]) == ("killed", 2)
    job.nothing_is_left()


def holder(slurm: Cluster, job: Steady) -> str:
    """The claimed node with rank 2, when that trains there."""
    job.wait_until(lambda: job.node_of(2) in ("n5", "n6"), "rank 2 on a claimed node")
    job.goes_on()
    return job.node_of(2)


def test_a_claimed_node_that_loses_its_power(slurm: Cluster) -> None:
    """The next one is claimed, and has the rank from those that are left."""
    job = Steady(slurm, "--floating-spares", "1", nodes=4, spare_nodes=0)
    job.trains()
    slurm.nodes["n3"].off()
    first = holder(slurm, job)
    slurm.nodes[first].off()
    other = "n5" if first == "n6" else "n6"
    job.wait_until(lambda: job.node_of(2) == other, f"rank 2 on {other}")
    job.goes_on()
    incidents = job.ends_as_undisturbed()
    assert [(incident["cause"], incident["rank"]) for incident in incidents] == [("node", 2), ("node", 2)]
    wait_until(lambda: not spares(slurm), "no spare", LONG)
    job.nothing_is_left()


def test_a_claimed_node_that_is_taken_away(slurm: Cluster) -> None:
    """It is from a partition whose jobs may be preempted, and Bob's job does. The next one is claimed."""
    job = Steady(slurm, "--floating-spares", "1", "--floating-option=--partition=scavenge", nodes=4, spare_nodes=0)
    job.trains()
    slurm.nodes["n3"].off()
    first = holder(slurm, job)
    slurm.run("bob", "sbatch", f"--nodelist={first}", "--nodes=1", "--exclusive", "--wrap=sleep inf")
    other = "n5" if first == "n6" else "n6"
    job.wait_until(lambda: job.node_of(2) == other, f"rank 2 on {other}")
    job.goes_on()
    assert len(job.ends_as_undisturbed()) == 2
    assert first in slurm.run("root", "squeue", "--noheader", "--user=bob", "--states=RUNNING", "--format=%N")
    wait_until(lambda: not spares(slurm), "no spare", LONG)
    job.nothing_is_left()


def test_a_claimed_node_is_near_its_peers(tmp_path: Path) -> None:
    """Slurm itself would give n1, of the other switch. When nothing is free on theirs, it comes from there."""
    with cluster(tmp_path / "c", "SwitchName=s1 Nodes=n[1-3]\nSwitchName=s2 Nodes=n[4-6]\nSwitchName=top Switches=s[1-2]\n") as slurm:
        slurm.begin()
        job = Steady(slurm, "--floating-spares", "2", "--nproc-per-node", "2", nodes=2, spare_nodes=0, options=("--nodelist=n[4-5]",))
        job.trains("n4")
        slurm.nodes["n5"].off()
        job.wait_until(lambda: {job.node_of(rank, "n4") for rank in (2, 3)} == {"n6"}, "both ranks on n6")
        job.goes_on("n4")
        slurm.nodes["n6"].off()
        job.wait_until(lambda: {job.node_of(rank, "n4") for rank in (2, 3)} <= {"n1", "n2", "n3"}, "both ranks on the other switch")
        job.goes_on("n4")
        assert len(job.ends_as_undisturbed("n4")) == 2
        slurm.end()

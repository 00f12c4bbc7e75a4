"""Real Slurm: what operators do to nodes under a running job, and Slurm's own daemons that go and come back."""

from __future__ import annotations

import signal

import pytest

from tests.message_texts import has
from tests.slurm.cluster import Cluster, needs_slurm
from tests.slurm.submitted import Steady
from understudy.messages import policies, service_jobs
from understudy.messages import slurm as messages

pytestmark = [needs_slurm, pytest.mark.timeout(600)]


def test_a_node_of_a_sharded_job_that_loses_its_power(slurm: Cluster) -> None:
    """Its shard of parameters and optimizer comes from the replica."""
    job = Steady(slurm, mode="hsdp")
    job.trains()
    slurm.nodes["n2"].off()
    job.wait_until(lambda: job.node_of(1) == "n5", "rank 1 on n5")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert (incident["cause"], incident["rank"]) == ("node", 1)
    job.nothing_is_left()


def drain(slurm: Cluster, node: str, state: str = "DRAIN") -> None:
    slurm.run("root", "scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=a bad DIMM")


@pytest.mark.parametrize(("mode", "state"), [("ddp", "DRAIN"), ("hsdp", "FAIL")])
def test_a_node_that_an_operator_drains(slurm: Cluster, mode: str, state: str) -> None:
    """Its rank moves away, as planned. The report names who requested it and why, the evidence and the rule."""
    job = Steady(slurm, mode=mode)
    job.trains()
    drain(slurm, "n3", state)
    job.wait_until(lambda: job.node_of(2) == "n5", "rank 2 on n5")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["planned"]
    detail = incident["ranks"][0]["detail"]
    assert has(detail, policies.DECIDED, detector="slurm") and has(detail, messages.NODE_STATE) and "a bad DIMM (root)" in detail
    job.nothing_is_left()


def test_a_node_that_is_given_back_is_drained_if_the_policy_asks_for_it(slurm: Cluster) -> None:
    """A node that is lost, while Slurm considers it healthy, is not given to other jobs. Only administrators may do that."""
    policy = slurm.home("alice") / "policy.toml"
    policy.write_text("[scheduler]\ndrain = true\n")
    slurm.run("root", "sacctmgr", "-i", "modify", "user", "alice", "set", "AdminLevel=Admin")
    try:
        job = Steady(slurm, "--policy", str(policy))
        job.trains()
        slurm.nodes["n4"].signal("alice", "understudy.agent", signal.SIGSTOP)
        job.wait_until(lambda: job.shown()["NodeList"] == "n[1-3,5]", "the job without n4")
        slurm.wait_for_nodes("n4", state="drained")
        reason = slurm.run("root", "sinfo", "--noheader", "--nodes=n4", "--format=%E")
        assert reason.strip() == f"understudy: slurm-{job.number}.0: it is lost"
        job.goes_on()
        (incident,) = job.ends_as_undisturbed()
        assert (incident["cause"], incident["rank"]) == ("node", 3)
        job.nothing_is_left()
    finally:
        slurm.run("root", "sacctmgr", "-i", "modify", "user", "alice", "set", "AdminLevel=None")


def test_a_drain_during_a_recovery(slurm: Cluster) -> None:
    """One node has lost its power, and another one is drained while the first one's rank is taken over."""
    job = Steady(slurm, nodes=6, spare_nodes=2)
    job.trains()
    slurm.nodes["n3"].off()
    drain(slurm, "n2")
    job.wait_until(lambda: {job.node_of(1), job.node_of(2)} == {"n5", "n6"}, "both ranks on n5 and n6")
    job.goes_on()
    assert len(job.ends_as_undisturbed()) == 2
    job.nothing_is_left()


def test_the_controller_away_and_back(slurm: Cluster) -> None:
    """While it is away a rank is lost and replaced. It gets the pending messages when it is back."""
    job = Steady(slurm)
    job.trains()
    slurm.controller.off()
    slurm.nodes["n3"].off()
    job.waits_without_slurm(lambda: job.node_of(2) == "n5", "rank 2 on n5")
    job.waits_without_slurm(lambda: has(job.output, service_jobs.SCHEDULER_FAILS), "that it is missed")
    slurm.controller.on()
    job.wait_until(lambda: "rank 2 of n3 on n5" in job.comment(), "what has become of it, in its comment")
    job.goes_on()
    assert len(job.ends_as_undisturbed()) == 1
    assert has(job.output, service_jobs.SCHEDULER_ANSWERS)
    job.nothing_is_left()


def test_a_slurmd_that_is_killed_and_nothing_else(slurm: Cluster) -> None:
    """Slurm reports that the node is down, and what runs there goes on. Its rank moves away, and its agent ends before slurmd returns."""
    job = Steady(slurm)
    job.trains()
    slurm.nodes["n3"].kill_daemon()
    job.wait_until(lambda: job.node_of(2) == "n5", "rank 2 on n5")
    job.wait_until(lambda: not slurm.nodes["n3"].processes("alice"), "nothing on n3")
    slurm.nodes["n3"].start_daemon()
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["planned"]
    job.nothing_is_left()


def test_a_node_that_slurm_takes_for_well_and_we_for_lost(slurm: Cluster) -> None:
    """Its agent is stopped. Its rank goes to a spare, the processes there are ended, and the node goes back to Slurm; the job ends well."""
    job = Steady(slurm)
    job.trains()
    slurm.nodes["n4"].signal("alice", "understudy.agent", signal.SIGSTOP)
    job.wait_until(lambda: job.node_of(3) == "n5", "rank 3 on n5")
    job.wait_until(lambda: not slurm.nodes["n4"].processes("alice"), "nothing on n4")
    job.wait_until(lambda: job.shown()["NodeList"] == "n[1-3,5]", "the job without n4")
    assert slurm.states()["n4"] == "idle"
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert (incident["cause"], incident["rank"]) == ("node", 3)
    job.nothing_is_left()

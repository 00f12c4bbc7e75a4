"""A real control plane: jobs of users, what happens to their nodes and pods, and that nothing is left of them."""

from __future__ import annotations

import pytest

from tests.integration.training import Outcome
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.jobs import KubernetesJob, Steady
from tests.message_texts import has
from understudy.messages import kubernetes_jobs

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]
HELD = 6  # the step in which a rank waits while the test disturbs its node


def test_a_job_that_nothing_happens_to(kubernetes: Cluster, undisturbed: Outcome) -> None:
    job = KubernetesJob(kubernetes)
    survived_nothing = job.ends()
    assert survived_nothing.record == undisturbed.record
    assert not job.incidents(killed=False)
    job.nothing_is_left()


@pytest.mark.parametrize("rank", [pytest.param(2, id="a node"), pytest.param(0, id="rank 0")])
def test_a_node_that_loses_its_power(kubernetes: Cluster, undisturbed: Outcome, rank: int) -> None:
    """With its kubelet and all pods on it."""
    job = KubernetesJob(kubernetes, environment={"HELD": f"{rank}:{HELD}"})
    job.wait_for(f"held {HELD}")
    job.wait_until(lambda: job.pod_of(rank) == f"job-{rank}", "labels")
    kubernetes.nodes[job.node_of(rank)].off()
    job.wait_until(lambda: job.pod_of(rank) == "job-4", "the rank on the spare pod")
    outcome = job.ends()
    assert outcome.code == 0 and outcome.record == undisturbed.record, outcome.output
    (incident,) = job.incidents()
    assert (incident["cause"], incident["rank"], incident["steps_lost"]) == ("node", rank, 0)
    kubernetes.wait_for(lambda: ("Normal", "Completed") in job.events(), "the event of its end")
    assert set(job.events()) == {("Normal", "PodsCreated"), ("Warning", "RanksReplaced"), ("Normal", "Completed")}
    job.nothing_is_left()


def test_two_nodes_of_a_sharded_job_one_after_the_other(kubernetes: Cluster) -> None:
    """A pod that is lost is replaced, on another node, by one that is the next spare."""
    job = Steady(kubernetes, mode="hsdp")
    job.trains()
    kubernetes.nodes[job.node_of(1)].off()
    job.wait_until(lambda: job.pod_of(1) == "job-4", "rank 1 on the spare pod")
    job.wait_until(lambda: job.pod_names("spare") == ["job-5"] and job.status["spares"] == 1, "the spare of the next pod")
    kubernetes.nodes[job.node_of(3)].off()
    job.wait_until(lambda: job.pod_of(3) == "job-5", "rank 3 on it")
    job.goes_on()
    incidents = job.ends_as_undisturbed()
    assert [(incident["cause"], incident["rank"]) for incident in incidents] == [("node", 1), ("node", 3)]
    job.nothing_is_left()


@pytest.mark.parametrize("mode", ["ddp", "hsdp"])
def test_kubectl_drain(kubernetes: Cluster, mode: str) -> None:
    """The budget refuses the eviction until the ranks have left; then the drain ends."""
    job = Steady(kubernetes, mode=mode)
    job.trains()
    kubernetes.operator.drain(job.node_of(2), limit=240.0)
    job.wait_until(lambda: job.pod_of(2) == "job-4", "rank 2 on the spare pod")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["planned"] and has(incident["ranks"][0]["detail"], kubernetes_jobs.CORDONED)
    job.nothing_is_left()


@pytest.mark.parametrize("what", ["a taint", "a condition", "its pod is deleted", "its pod is to be left"])
def test_what_speaks_against_a_node(kubernetes: Cluster, what: str) -> None:
    job = Steady(kubernetes)
    job.trains()
    node = job.node_of(2)
    if what == "a taint":
        kubernetes.operator.taint(node, "nvidia.com/gpu-xid", "NoExecute", "74")
    elif what == "a condition":
        kubernetes.operator.set_condition(node, "GpuNvlinkWatch", "True", message="link 3 is down")
    elif what == "its pod is deleted":
        kubernetes.delete("Pod", "job-2")
    else:
        kubernetes.patch("Pod", "job-2", {"metadata": {"annotations": {"understudy.dev/leave": "a bad fan"}}})
    job.wait_until(lambda: job.pod_of(2) == "job-4", "rank 2 on the spare pod")
    kubernetes.wait_for_end_of("job-2")
    if what == "a condition":
        kubernetes.operator.remove_condition(node, "GpuNvlinkWatch")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["planned"], incident
    job.nothing_is_left()


def test_a_drain_during_a_recovery(kubernetes: Cluster) -> None:
    job = Steady(kubernetes, spares=2)
    job.trains()
    lost, drained = job.node_of(2), job.node_of(1)
    kubernetes.nodes[lost].off()
    kubernetes.operator.cordon(drained)
    job.wait_until(lambda: {job.pod_of(1), job.pod_of(2)} == {"job-4", "job-5"}, "both ranks on spare pods")
    job.goes_on()
    assert len(job.ends_as_undisturbed()) == 2
    job.nothing_is_left()


def test_the_api_server_away_and_back(kubernetes: Cluster) -> None:
    """A rank is lost meanwhile. Training waits for it, and goes on when the server is back."""
    job = Steady(kubernetes)
    job.trains()
    node = job.node_of(2)
    kubernetes.plane.apiserver.kill()
    now = job.steps()
    job.waits_without_server(lambda: job.steps() > now + 20, "training, without the server")
    kubernetes.nodes[node].off()
    kubernetes.plane.start()
    job.wait_until(lambda: job.pod_of(2) == "job-4", "rank 2 on the spare pod")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert (incident["cause"], incident["rank"]) == ("node", 2)
    job.nothing_is_left()


def test_the_orchestrator_that_leads_is_lost_with_its_node_and_a_rank(kubernetes: Cluster) -> None:
    job = Steady(kubernetes)
    job.trains()
    leader = job.leader()
    kubernetes.nodes[str(kubernetes.get("Pod", leader)["spec"]["nodeName"])].off()
    job.wait_until(lambda: job.leader() not in ("", leader), "another one leads")
    job.goes_on()
    job.ends_as_undisturbed()
    job.nothing_is_left()


@pytest.mark.parametrize("phase", ["before its pods run", "before the first step", "in plain training", "during a recovery", "over"])
def test_deleted(kubernetes: Cluster, phase: str) -> None:
    """At any moment: everything ends and goes, on all nodes."""
    job = KubernetesJob(kubernetes, environment={"HELD": f"2:{HELD}", "PHASES": f"setup:{HELD}"})
    if phase == "before the first step":
        job.wait_until(lambda: len(job.pod_names()) == 7, "its pods")
    elif phase != "before its pods run":
        job.wait_for(f"held {HELD}")
    if phase == "during a recovery":
        kubernetes.nodes[job.node_of(2)].off()
        job.wait_for("setup")
    if phase == "over":
        job.let()
        job.ends()
    job.nothing_is_left()


def test_the_script_fails(kubernetes: Cluster) -> None:
    job = KubernetesJob(kubernetes, source="import sys, understudy\njob = understudy.join()\nsys.exit(7)\n")
    outcome = job.ends("Failed")
    assert outcome.code == 7, outcome.output
    kubernetes.wait_for(lambda: ("Warning", "Failed") in job.events(), "an event")
    job.nothing_is_left()


def test_a_policy_that_is_none(kubernetes: Cluster) -> None:
    """It is refused, with the reason; nothing runs."""
    job = KubernetesJob(kubernetes, spec={"policy": "[[rule]]\naction = 7\n"})
    outcome = job.ends("Failed")
    assert outcome.code == 2 and "policy" in job.status["message"], job.status
    kubernetes.wait_for(job.events, "the event, which comes after the status")
    assert not job.pod_names() and job.events() == [("Warning", "Refused")]
    job.nothing_is_left()

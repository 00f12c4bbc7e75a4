"""A real control plane: what controls jobs is killed in the middle of their incidents, and NVSentinel asks for nodes."""

from __future__ import annotations

import pytest

from tests.integration.training import Outcome
from tests.kubernetes.api import Object
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.installation import SYSTEM, controllers, holder
from tests.kubernetes.jobs import KubernetesJob, Steady

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]
HELD = 6  # the step in which a rank waits while the test disturbs its node
NVSENTINEL = "nvsentinel.nvidia.com/v1alpha1"


@pytest.mark.parametrize("phase", ["survivor", "setup", "apply", "redo"])
def test_both_controllers_and_the_orchestrator_that_leads_are_killed(kubernetes: Cluster, undisturbed: Outcome, phase: str) -> None:
    """While a rank that was lost with its node is being replaced. Their kubelets start them again, and all goes on; the pod is replaced."""
    job = KubernetesJob(kubernetes, environment={"HELD": f"1:{HELD}", "PHASES": f"{phase}:{HELD}", "WAIT": "1"})
    job.wait_for(f"held {HELD}")
    job.wait_until(lambda: job.pod_of(1) == "job-1", "labels")
    kubernetes.nodes[job.node_of(1)].off()
    job.wait_for(phase)
    pods, leader = controllers(kubernetes), job.leader()
    assert holder(kubernetes).partition(" ")[0] in pods and leader
    killed = [pod for pod in pods if kubernetes.is_running(pod, SYSTEM)]
    assert killed
    for pod in killed:
        kubernetes.kill(pod, SYSTEM)
    if kubernetes.is_running(leader):  # it may have been on that node, too: another one leads by now or soon
        kubernetes.kill(leader)
    job.let(f"go on {phase}")
    job.wait_until(lambda: job.pod_of(1) == "job-4", "rank 1 on the spare pod")
    job.wait_until(lambda: job.pod_names("spare") == ["job-5"] and job.status["spares"] == 1, "the next spare")
    job.let("end")
    outcome = job.ends()
    assert outcome.code == 0 and outcome.record == undisturbed.record, outcome.output
    (incident,) = job.incidents()
    assert (incident["cause"], incident["rank"], incident["steps_lost"]) == ("node", 1, 0)
    job.nothing_is_left()


def test_the_controller_that_leads_is_killed_again_and_again(kubernetes: Cluster) -> None:
    """While a node is lost and its pod is replaced. Each time another controller, or the same one restarted, continues, and no
    pod is created twice.
    """
    job = Steady(kubernetes)
    job.trains()
    kubernetes.nodes[job.node_of(2)].off()
    for _ in range(3):
        leads = holder(kubernetes)
        pod = leads.partition(" ")[0]
        if pod and kubernetes.is_running(pod, SYSTEM):
            kubernetes.kill(pod, SYSTEM)
        job.wait_until(lambda leads=leads: holder(kubernetes) not in ("", leads), "another controller leads")
    job.wait_until(lambda: job.pod_of(2) == "job-4", "rank 2 on the spare pod")
    job.wait_until(lambda: job.pod_names("spare") == ["job-5"], "the next spare")
    assert job.status["nextNumber"] == 6
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert (incident["cause"], incident["rank"]) == ("node", 2)
    job.nothing_is_left()


def test_a_drain_request_of_nvsentinel(kubernetes: Cluster) -> None:
    """It is complete when no rank is there any more, and not before."""
    job = Steady(kubernetes)
    job.trains()
    node = job.node_of(2)
    spec: Object = {"nodeName": node, "checkName": "GpuXid", "recommendedAction": "RESTART_BM", "reason": "XID 79"}
    spec |= {"podsToDrain": {kubernetes.namespace: ["job-2"]}}
    request = {"apiVersion": NVSENTINEL, "kind": "DrainRequest", "metadata": {"name": "drain-w"}, "spec": spec}
    kubernetes.apply(request)

    def complete() -> bool:
        status = kubernetes.get("DrainRequest", "drain-w", NVSENTINEL).get("status") or {}
        there = any((each["type"], each["status"]) == ("DrainComplete", "True") for each in status.get("conditions") or [])
        if there:
            assert job.pod_of(2) == "job-4" and not kubernetes.processes("job-2"), "its ranks are there still"
        return there

    job.wait_until(complete, "DrainComplete")
    job.goes_on()
    (incident,) = job.ends_as_undisturbed()
    assert incident["planned"] and "DrainRequest" in incident["ranks"][0]["detail"] and "XID 79" in incident["ranks"][0]["detail"]
    kubernetes.delete("DrainRequest", "drain-w", NVSENTINEL)
    job.nothing_is_left()

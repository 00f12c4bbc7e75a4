"""A real control plane: nodes with taints that the pods of a job tolerate."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import NODES, Cluster, needs_kubernetes
from tests.kubernetes.jobs import GROUP, Steady
from tests.message_texts import has
from understudy.messages import kubernetes_jobs

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]

TOLERATES = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in ("nvidia.com/gpu", "nvidia.com/gpu-xid")]


def test_gpu_nodes_keep_others_away_by_a_taint(kubernetes: Cluster) -> None:
    """It speaks against none of them: a drain has somewhere to go. A taint that comes later speaks against its node, though the pods
    tolerate it, too. The last node has no taint: orchestrators need one.
    """
    for name in NODES[:-1]:
        kubernetes.operator.taint(name, "nvidia.com/gpu", "NoSchedule", "present")
    job = Steady(kubernetes, pod={"tolerations": TOLERATES})
    job.trains()
    drained = job.node_of(2)
    kubernetes.operator.drain(drained, limit=240.0)
    job.wait_until(lambda: job.pod_of(2) == "job-4", "rank 2 on the spare pod")
    job.wait_until(lambda: job.pod_names("spare") == ["job-5"] and job.status["spares"] == 1, "the next spare")
    noted = kubernetes.get("Pod", job.pod_of(0))["metadata"]["annotations"][f"{GROUP}/tolerated"]
    assert ("nvidia.com/gpu" in noted) == (job.node_of(0) != NODES[-1])
    kubernetes.operator.taint(job.node_of(1), "nvidia.com/gpu-xid", "NoSchedule", "74")
    job.wait_until(lambda: job.pod_of(1) == "job-5", "rank 1 on the next one")
    job.goes_on()
    first, second = job.ends_as_undisturbed()
    assert first["planned"] and has(first["ranks"][0]["detail"], kubernetes_jobs.CORDONED, node=drained)
    assert second["planned"] and has(second["ranks"][0]["detail"], kubernetes_jobs.TAINTED, taint="nvidia.com/gpu-xid=74:NoSchedule")
    assert len(first["ranks"]) == len(second["ranks"]) == 1
    job.nothing_is_left()

"""A real control plane: pods that a job asks for when it needs them, by ordinary preemption, and gives back; and the port to schedulers."""

from __future__ import annotations

import json
import sys

import pytest

from tests.kubernetes.api import Object
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.jobs import API, GROUP, KIND, Steady
from tests.kubernetes.pods import SLEEPS, pod
from tests.kubernetes.test_log import api_of
from understudy.schedulers.base import Work
from understudy.schedulers.kubernetes.allocation import KubernetesAllocation
from understudy.schedulers.kubernetes.names import NODE_VARIABLE

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]


def test_a_pod_is_claimed_by_preemption_and_given_back(kubernetes: Cluster) -> None:
    """Bob's pods have all other nodes. The job loses one and has no spare: one of Bob's pods makes room. When the node is back, the job has
    its own spare again, the rank moves there, and the claimed pod goes.
    """
    scheduling = "scheduling.k8s.io/v1"
    kubernetes.apply({"apiVersion": scheduling, "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000})
    job = Steady(kubernetes, spares=0, spec={"spares": {"pods": 0, "floating": {"pods": 1, "priorityClassName": "urgent"}}})
    job.trains()
    for number in range(2):
        kubernetes.apply(pod(f"bob-{number}", SLEEPS, gpus=4))
        kubernetes.wait_for_pod(f"bob-{number}")
    node = job.node_of(2)
    kubernetes.nodes[node].off()
    job.wait_until(lambda: job.pod_of(2) == "job-claim-0", "rank 2 on a claimed pod")
    assert [kubernetes.has("Pod", f"bob-{number}") for number in range(2)].count(True) == 1
    assert ("Warning", "NoSpare") in job.events(), "it waited for the claimed pod"
    story = kubernetes.get("Pod", "job-claim-0")["metadata"]["annotations"][f"{GROUP}/story"]
    assert "rank 2 on job-claim-0" in story or "for rank 2" in story
    job.goes_on()
    kubernetes.nodes[node].on()
    job.wait_until(lambda: job.pod_of(2) in ("job-4", "job-5"), "rank 2 on a pod of the job's own")
    kubernetes.wait_for_end_of("job-claim-0")
    job.goes_on()
    first, second = job.ends_as_undisturbed()
    assert (first["cause"], first["rank"], first["planned"]) == ("node", 2, False) and second["planned"]
    job.nothing_is_left()


def test_a_claimed_pod_is_as_the_server_has_the_others(kubernetes: Cluster) -> None:
    """With the devices, tolerations, node selector and priority of the template; on nodes of a pool that others may not use."""
    cluster = kubernetes
    cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "training"}, "value": 500})
    pool, tolerates = ("w4", "w5"), [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    for name in pool:
        cluster.patch("Node", name, {"metadata": {"labels": {"pool": "gpu"}}})
        cluster.operator.taint(name, "nvidia.com/gpu", "NoSchedule", "present")
    container = {"name": "main", "image": "none", "command": SLEEPS, "resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "1"}}}
    template: Object = {
        "containers": [container],
        "tolerations": tolerates,
        "nodeSelector": {"pool": "gpu"},
        "priorityClassName": "training",
    }
    template["securityContext"] = {"runAsNonRoot": True}
    spec: Object = {"pods": 1, "orchestrators": 1, "spares": {"pods": 0, "floating": {"pods": 1}}, "template": {"spec": template}}
    made = cluster.apply({"apiVersion": API, "kind": KIND, "metadata": {"name": "job"}, "spec": spec})
    cluster.wait_for(lambda: cluster.has("Pod", "job-0"), "its pod")
    one = cluster.wait_for_pod("job-0", "Running")
    ours = KubernetesAllocation(api_of(cluster), GROUP, cluster.namespace, "job", made["metadata"]["uid"])
    ours.look()
    ours.claim(0, Work("w", ()), (), "job-0", "a test")
    claimed = cluster.wait_for_pod("job-claim-0", "Running")
    for each in (one, claimed):
        assert each["spec"]["nodeName"] in pool and each["spec"]["priority"] == 500
    own = {"containers", "hostname", "nodeName"}
    differs = {key for key in one["spec"].keys() | claimed["spec"].keys() if one["spec"].get(key) != claimed["spec"].get(key)}
    assert differs <= own
    first, second = (each["spec"]["containers"][0] for each in (one, claimed))
    assert {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)} == {"env"}
    profile = {"type": "RuntimeDefault"}
    assert first["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": profile}
    ours.close()
    for name in pool:
        cluster.patch("Node", name, {"metadata": {"labels": {"pool": None}}})


def test_the_port_to_kubernetes_as_a_scheduler(kubernetes_cluster: Cluster) -> None:
    """Its process runs in a pod like that of the caller, is asked to end, and its end is reported."""
    rbac = "rbac.authorization.k8s.io"
    kubernetes_cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "asker"}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create", "delete"]}
    kubernetes_cluster.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "asker"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "asker", "namespace": kubernetes_cluster.namespace}
    role = {"apiGroup": rbac, "kind": "Role", "name": "asker"}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": {"name": "asker"}, "roleRef": role, "subjects": [subject]}
    kubernetes_cluster.apply(binding)
    name = {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    asks = pod("asker", [sys.executable, "-c", PORT], container={"env": [name]}, serviceAccountName="asker", restartPolicy="Never")
    kubernetes_cluster.apply(asks)
    kubernetes_cluster.wait_for_pod("asker", "Succeeded", "Failed")
    assert json.loads(kubernetes_cluster.log("asker")) == [True, "running", "pod first succeeded", True, True]


PORT = """
import json, select, sys
from understudy.schedulers.base import Work
from understudy.schedulers.registry import find

scheduler = find("kubernetes")
job = scheduler.submit(Work("first", (sys.executable, "-c", "import os; assert os.environ['WHO'] == 'us'"), {"WHO": "us"}))
ends = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); print('ready', flush=True); signal.pause()"
node = scheduler.add_node(Work("second", (sys.executable, "-c", ends)))
ended = job.wait(60)
found = scheduler.status()
scheduler.drain_node("second")
over = node.wait(60)
readable = select.select([node], [], [], 10)[0] == [node]
print(json.dumps([ended, found["second"], found["first"], over, readable and scheduler.status()["second"] != "running"]))
"""

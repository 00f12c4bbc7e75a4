"""The nodes and the control plane of the test's own Kubernetes cluster, when something happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import wait_until
from tests.kubernetes.api import Object, Refused
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.control_plane import NODE_GRACE
from tests.kubernetes.pods import SLEEPER, SLEEPS, pod

pytestmark = [needs_kubernetes]

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_FOR_LONG = [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]


def is_deleted(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get("Pod", name)["metadata"].get("deletionTimestamp"))


def test_pods_of_a_node_that_is_off_are_evicted_and_end_when_it_is_back(kubernetes_cluster: Cluster) -> None:
    cluster, node = kubernetes_cluster, kubernetes_cluster.nodes["w2"]
    cluster.apply(pod("leaves", SLEEPS, node="w2", tolerations=NOT_FOR_LONG))
    cluster.apply(pod("stays", SLEEPS, node="w2"))
    cluster.apply(pod("once", SLEEPS, node="w2", restartPolicy="Never"))
    for name in ("leaves", "stays", "once"):
        cluster.wait_for_pod(name)
    wait_until(lambda: cluster.processes("*").count(SLEEPER) == 3, "the process of each container")  # it runs a shell first
    node.off()
    cluster.wait_for_nodes("w2", ready="Unknown")
    wait_until(lambda: f"{UNREACHABLE}=:NoExecute" in cluster.operator.taints("w2"), "the taint")
    wait_until(lambda: is_deleted(cluster, "leaves"), "the eviction")
    assert not is_deleted(cluster, "stays"), "it tolerates that for five minutes"
    assert cluster.get("Pod", "leaves")["status"]["phase"] == "Running", "there is no one to report otherwise"
    node.on()
    cluster.wait_for_end_of("leaves")
    cluster.wait_for_nodes("w2")
    cluster.wait_for(lambda: cluster.get("Pod", "stays")["status"]["containerStatuses"][0]["restartCount"] == 1, "its restart")
    cluster.wait_for_pod("stays")
    ended = cluster.wait_for_pod("once", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")


def test_a_kubelet_that_is_killed_leaves_its_pods_running_and_finds_them_again(kubernetes_cluster: Cluster) -> None:
    cluster, node = kubernetes_cluster, kubernetes_cluster.nodes["w3"]
    for name in ("kept", "deleted", "forgotten"):
        cluster.apply(pod(name, SLEEPS, node="w3"))
    address = {name: cluster.wait_for_pod(name)["status"]["podIP"] for name in ("kept", "deleted", "forgotten")}
    node.kill_kubelet()
    cluster.wait_for_nodes("w3", ready="Unknown")
    cluster.delete("Pod", "deleted")
    cluster.delete("Pod", "forgotten", grace=0)
    assert cluster.processes("*").count(SLEEPER) == 3, "no one has notified them"
    assert not cluster.has("Pod", "forgotten")
    node.start_kubelet()
    cluster.wait_for_end_of("deleted")
    cluster.wait_for(lambda: cluster.processes("*").count(SLEEPER) == 1, "the end of what is deleted")
    kept = cluster.wait_for_pod("kept")["status"]
    assert (kept["podIP"], kept["containerStatuses"][0]["restartCount"]) == (address["kept"], 0)


def test_a_node_whose_cable_is_pulled_works_on_and_is_believed_lost(kubernetes_cluster: Cluster, tmp_path: Path) -> None:
    cluster, node = kubernetes_cluster, kubernetes_cluster.nodes["w4"]
    out = [{"name": "out", "hostPath": {"path": str(tmp_path)}}]
    patient: dict[str, Any] = {"tolerations": NOT_FOR_LONG, "terminationGracePeriodSeconds": 2}
    counts = "n=0; while :; do n=$((n + 1)); echo $n >/out/n; sleep 0.1; done"
    mounted = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
    cluster.apply(pod("works", ["sh", "-c", counts], node="w4", container=mounted, volumes=out, **patient))
    cluster.apply(pod("other", SLEEPS, node="w5"))
    target = cluster.wait_for_pod("works")["status"]["podIP"]
    cluster.wait_for_pod("other")

    def reaches() -> bool:
        ask = f"import socket, sys; s = socket.socket(); s.settimeout(0.5); sys.exit(s.connect_ex(('{target}', 9)) != 111)"
        return cluster.run_in("other", "python", "-S", "-c", ask).returncode == 0

    assert reaches()  # it refuses the connection
    node.cut()
    assert not reaches()
    cluster.wait_for_nodes("w4", ready="Unknown")
    cluster.wait_for(lambda: is_deleted(cluster, "works"), "the eviction")
    before = int((tmp_path / "n").read_text() or 0)
    cluster.wait_for(lambda: int((tmp_path / "n").read_text() or 0) > before + 5, "it still works")
    node.heal()
    cluster.wait_for_end_of("works")
    cluster.wait_for_nodes("w4")
    assert not cluster.processes("works")


def test_a_taint_evicts_at_once_those_that_do_not_tolerate_it(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    key = "example.com/gpu-error"
    cluster.apply(pod("leaves", SLEEPS, node="w1"))
    cluster.apply(pod("tolerates", SLEEPS, node="w1", tolerations=[{"key": key, "operator": "Exists"}]))
    cluster.wait_for_pod("leaves")
    cluster.wait_for_pod("tolerates")
    cluster.operator.taint("w1", key, "NoExecute", "79")
    cluster.wait_for_end_of("leaves")
    assert not is_deleted(cluster, "tolerates")
    assert f"{key}=79:NoExecute" in cluster.operator.taints("w1")
    cluster.operator.set_condition("w1", "GpuXid", "True", message="79")
    assert cluster.operator.condition("w1", "GpuXid") == "True"
    cluster.wait_for_nodes("w1")  # the kubelet's own conditions stay, too
    cluster.operator.remove_condition("w1", "GpuXid")
    cluster.operator.untaint("w1", key)
    assert not cluster.operator.taints("w1")


def test_a_drain_waits_for_the_disruption_budget(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    guarded: dict[str, Any] = {"labels": {"guarded": "yes"}}
    cluster.apply(pod("one", SLEEPS, node="w1", **guarded))
    cluster.apply(pod("two", SLEEPS, node="w2", **guarded))
    cluster.wait_for_pod("one")
    cluster.wait_for_pod("two")
    budget = {"minAvailable": 2, "selector": {"matchLabels": guarded["labels"]}}
    cluster.apply({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "two"}, "spec": budget})
    policy = "policy/v1beta1"
    cluster.wait_for(lambda: cluster.get("PodDisruptionBudget", "two", policy)["status"].get("currentHealthy") == 2, "the budget's count")
    with pytest.raises(Refused) as refused:
        cluster.operator.evict(cluster.namespace, "one")
    assert refused.value.status == 429
    failed: list[BaseException] = []

    def drains() -> None:
        try:
            cluster.operator.drain("w1")
        except BaseException as error:
            failed.append(error)

    drain = threading.Thread(target=drains)
    drain.start()
    cluster.wait_for(lambda: cluster.operator.node("w1")["spec"].get("unschedulable"), "the cordon")
    assert not is_deleted(cluster, "one")
    cluster.apply(pod("three", SLEEPS, node="w3", **guarded))
    drain.join(120)
    assert not drain.is_alive() and not failed
    assert not cluster.has("Pod", "one") and cluster.has("Pod", "two")


def test_a_pod_of_higher_priority_takes_the_place_of_another(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    for name, value in (("understudy-tests-low", 1), ("understudy-tests-high", 1000)):
        described = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        cluster.apply({**described, "preemptionPolicy": "PreemptLowerPriority"})
    for number in range(1, 7):
        cluster.apply(pod(f"low-{number}", SLEEPS, gpus=4, priorityClassName="understudy-tests-low"))
    places = {cluster.wait_for_pod(f"low-{number}")["spec"]["nodeName"] for number in range(1, 7)}
    assert places == set(cluster.nodes), "each has four GPUs"
    cluster.apply(pod("high", SLEEPS, gpus=4, priorityClassName="understudy-tests-high"))
    cluster.wait_for_pod("high")
    left = {found["metadata"]["name"] for found in cluster.all_of("Pod")}
    assert len(left) == 6 and "high" in left


def test_pods_run_on_without_the_control_plane(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    cluster.apply(pod("runs", SLEEPS))
    before = cluster.wait_for_pod("runs")
    for daemon in (cluster.plane.apiserver, cluster.plane.scheduler, cluster.plane.controllers):
        daemon.kill()
    with pytest.raises(OSError):
        cluster.get("Pod", "runs")
    assert cluster.processes("runs")
    cluster.plane.start()
    cluster.wait_for_nodes()
    after = cluster.get("Pod", "runs")
    assert after["metadata"]["uid"] == before["metadata"]["uid"] and not after["metadata"].get("deletionTimestamp")
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.apply(pod("new", ["true"], restartPolicy="Never"))  # scheduler and kubelets have found the server again
    cluster.wait_for_pod("new", "Succeeded")


def test_controllers_recreate_pods(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    template: Object = {"metadata": {"labels": {"app": "web"}}, "spec": pod("", SLEEPS)["spec"]}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})

    def ready() -> set[str]:
        found = cluster.all_of("Pod", labelSelector="app=web")
        return {str(each["metadata"]["name"]) for each in found if cluster.is_ready(each) and not each["metadata"].get("deletionTimestamp")}

    cluster.wait_for(lambda: len(ready()) == 3, "three pods")
    gone = min(ready())
    cluster.delete("Pod", gone, grace=0)
    cluster.wait_for(lambda: len(ready() - {gone}) == 3, "another one in its place")


RUNS = """
import sys
from pathlib import Path
from typing import Any
from tests.kubernetes.cluster import cluster
from tests.kubernetes.pods import SLEEPER, SLEEPS, pod
with cluster(Path(sys.argv[1])) as made:
    made.begin()
    made.apply(pod("one", SLEEPS))
    made.wait_for_pod("one")
    print(made.switch.cable, flush=True)
    sys.stdin.read()
"""


def left_of(folder: Path) -> list[str]:
    """Processes that have to do with a cluster in this folder."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_nothing_is_left_of_a_cluster(tmp_path: Path, killed: bool) -> None:
    """Of one that is stopped, and of one whose tests are killed."""
    folder = tmp_path / "c"
    words = [sys.executable, "-c", RUNS, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        cable = Path("/sys/class/net") / process.stdout.readline().strip()
        assert cable.name and cable.exists()
        assert left_of(folder)
        if killed:
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.close()
        assert process.wait(60) == (-signal.SIGKILL if killed else 0)
    wait_until(lambda: not left_of(folder), "the end of every process")
    wait_until(lambda: not cable.exists(), "the end of the network")
    mounted = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
    assert not mounted


def test_a_silent_node_is_unreachable_within_its_time(kubernetes_cluster: Cluster) -> None:
    cluster = kubernetes_cluster
    cluster.nodes["w6"].off()
    cluster.wait_for(lambda: cluster.operator.condition("w6") == "Unknown", "the silence", limit=4 * NODE_GRACE)

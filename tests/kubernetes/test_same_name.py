"""A real control plane: a job that is created under the name of another one, parts of which still exist."""

from __future__ import annotations

import pytest

from tests.kubernetes.api import Object
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.installation import there
from tests.kubernetes.jobs import API, GROUP, KIND, KubernetesJob
from tests.kubernetes.pods import SLEEPS
from tests.message_texts import has
from understudy.messages import controller

pytestmark = [needs_kubernetes, pytest.mark.timeout(900)]

COUNTS = """
import sys, pathlib, understudy
understudy.join()
runs = pathlib.Path(sys.argv[1]) / f"run {sys.argv[2]}"
runs.touch()
"""


def a_job(cluster: Cluster, run: int, out: Object) -> Object:
    """Which is over as soon as its ranks have joined."""
    container = {
        "name": "trainer",
        "image": "none",
        "command": ["understudy", "run", "--run-dir", "/tmp/run", "/out/script.py", "/out", str(run)],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    spec = {"pods": 2, "spares": {"pods": 0}, "template": {"spec": {"containers": [container], "volumes": [out]}}}
    return {"apiVersion": API, "kind": KIND, "metadata": {"name": "job"}, "spec": spec}


@pytest.fixture
def out(kubernetes: Cluster) -> Object:
    folder = kubernetes.folder / f"{kubernetes.namespace}-out"
    folder.mkdir()
    (folder / "script.py").write_text(COUNTS)
    return {"name": "out", "hostPath": {"path": str(folder)}}


def status(cluster: Cluster) -> Object:
    return dict(cluster.get(KIND, "job", API).get("status") or {})


def condition(cluster: Cluster, kind: str = "CreationFailed") -> Object:
    return next((each for each in status(cluster).get("conditions") or [] if each["type"] == kind), {"status": "", "reason": ""})


def test_deleted_and_made_again(kubernetes: Cluster, out: Object) -> None:
    """As by `kubectl replace --force`, while the cluster's garbage collector is away: all objects of the first job still exist,
    its journal, lease and account, too. The second job waits until they are gone, and is a separate job then.
    """
    cluster = kubernetes
    folder = cluster.folder / f"{cluster.namespace}-out"
    first = cluster.apply(a_job(cluster, 1, out))["metadata"]["uid"]
    cluster.wait_for(lambda: status(cluster).get("phase") == "Complete", "the end of the first job")
    assert (folder / "run 1").exists()
    cluster.plane.controllers.kill()
    cluster.delete(KIND, "job", API)
    cluster.wait_for(lambda: not cluster.has(KIND, "job", API), "the end of its resource")
    second = cluster.apply(a_job(cluster, 2, out))["metadata"]["uid"]
    assert first != second
    cluster.wait_for(lambda: condition(cluster)["reason"] == "LeftoverObjects", "what waits")
    assert has(condition(cluster)["message"], controller.LEFT_OVER, job="job")
    assert not cluster.all_of("Pod", labelSelector=f"{GROUP}/job=job"), "its pods would find the account of the first job"
    assert cluster.all_of("ConfigMap", labelSelector=f"{GROUP}/log=job"), (
        "nothing of the first job's journal was left: the test shows nothing"
    )
    cluster.plane.start()
    cluster.wait_for(lambda: status(cluster).get("phase") == "Complete", "the end of the second job")
    assert (folder / "run 2").exists() and condition(cluster)["status"] == "False"
    cluster.wait_for(lambda: owners(cluster) == {second}, "the end of all that was the first job's")


def owners(cluster: Cluster) -> set[str]:
    """The uids of those to which the objects of a job belong."""
    kinds = [(kind, "v1") for kind in ("ConfigMap", "ServiceAccount", "Service", "Secret")] + [("Lease", "coordination.k8s.io/v1")]
    found = [each for kind, api in kinds for each in cluster.all_of(kind, api) if each["metadata"]["name"].startswith("job")]
    return {owner["uid"] for each in found for owner in each["metadata"].get("ownerReferences") or []}


def test_an_object_of_another_owner_is_in_the_way(kubernetes: Cluster, out: Object) -> None:
    """The job names it, and begins when it is gone."""
    cluster = kubernetes
    port = {"port": 80, "protocol": "TCP"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "job"}, "spec": {"selector": {"app": "web"}, "ports": [port]}}
    )
    job = a_job(cluster, 1, out)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = SLEEPS
    cluster.apply(job)
    cluster.wait_for(lambda: condition(cluster)["reason"] == "NameTaken", "what is in the way")
    assert has(condition(cluster)["message"], controller.NAME_TAKEN, kind="Service", name="job")
    cluster.wait_for(lambda: "CreationFailed" in events(cluster), "an event")
    assert not cluster.all_of("Pod", labelSelector=f"{GROUP}/job=job")
    cluster.delete("Service", "job")
    cluster.wait_for(lambda: condition(cluster)["status"] == "False", "what is not in the way any more")
    for name in ("job-0", "job-1"):
        cluster.wait_for_pod(name, "Running")


SHARED = [
    ("ServiceAccount", "job-orchestrator", "v1"),
    ("Service", "job", "v1"),
    ("RoleBinding", "job-orchestrator", "rbac.authorization.k8s.io/v1"),
    ("PodDisruptionBudget", "job", "policy/v1beta1"),
    ("NetworkPolicy", "job-orchestrator", "networking.k8s.io/v1"),
]


def test_objects_without_an_owner_serve(kubernetes: Cluster, out: Object) -> None:
    """An account that was made before the job, and what `kubectl delete --cascade=orphan` has left, with all that the server adds."""
    cluster = kubernetes
    kind, name, api = SHARED[0]
    cluster.apply({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "imagePullSecrets": [{"name": "mine"}]})
    job = a_job(cluster, 1, out)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = SLEEPS
    uids: list[set[str]] = []
    for _ in range(2):
        cluster.apply(job)
        cluster.wait_for(lambda: condition(cluster)["status"] == "True" or cluster.has("Pod", "job-1"), "its pods, or what is in the way")
        assert condition(cluster)["status"] != "True", condition(cluster)
        cluster.wait_for_pod("job-1", "Running")
        uids.append({cluster.get(*each)["metadata"]["uid"] for each in SHARED})
        for kind, name, api in SHARED:
            cluster.patch(kind, name, {"metadata": {"ownerReferences": None}}, api, how="application/merge-patch+json")
        cluster.delete(KIND, "job", API)
        cluster.wait_for(lambda: not cluster.has(KIND, "job", API), "the end of the job")
    assert uids[0] == uids[1]


def test_its_finalizer_was_taken_away_by_hand(kubernetes: Cluster, out: Object) -> None:
    """Its pods still run, and the right of its orchestrators in the cluster has no owner. The next job of its name takes nothing of it."""
    cluster = kubernetes
    first = KubernetesJob(cluster, environment={"HELD": "2:6"})
    first.wait_for("held 6")
    uid = first.resource()["metadata"]["uid"]
    cluster.plane.controllers.kill()
    first.delete()
    cluster.patch(KIND, "job", {"metadata": {"finalizers": None}}, API, how="application/merge-patch+json")
    cluster.wait_for(lambda: not cluster.has(KIND, "job", API), "the end of its resource")
    binding = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/understudy:{cluster.namespace}:job"
    assert there(cluster, binding)
    second = cluster.apply(a_job(cluster, 2, out))["metadata"]["uid"]
    cluster.wait_for(lambda: condition(cluster)["reason"] == "LeftoverObjects", "what waits")
    left = [pod for pod in cluster.all_of("Pod", labelSelector=f"{GROUP}/job=job") if "deletionTimestamp" not in pod["metadata"]]
    assert {owner["uid"] for pod in left for owner in pod["metadata"]["ownerReferences"]} == {uid}, "its pods are left to Kubernetes"
    cluster.plane.start()
    cluster.wait_for(lambda: status(cluster).get("phase") == "Complete", "the end of the second job")
    assert (cluster.folder / f"{cluster.namespace}-out" / "run 2").exists()
    assert cluster.api.get(binding)["metadata"]["labels"][f"{GROUP}/uid"] == second


def events(cluster: Cluster) -> list[str]:
    """The reasons of those of the job."""
    found = [each for each in cluster.all_of("Event") if each["involvedObject"]["kind"] == KIND]
    return [each["reason"] for each in found]

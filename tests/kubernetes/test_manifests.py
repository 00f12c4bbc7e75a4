"""The objects of `kubectl apply -k deploy/kubernetes` on a real API server, and the objects that its schema refuses there.

The server of the tests is of 1.20: it drops the rules that newer ones evaluate (`x-kubernetes-validations`), and has budgets as
policy/v1beta1. `tests/schedulers/kubernetes/test_manifests.py` checks what a current one accepts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import pytest

from tests.kubernetes.api import Access, Api, Object, Refused
from tests.kubernetes.cluster import Cluster, needs_kubernetes
from tests.kubernetes.control_plane import PORT, TOKEN
from tests.kubernetes.installation import DEPLOYMENT, SYSTEM, there
from tests.kubernetes.pods import SLEEPS
from tests.kustomize import KUBERNETES, documents
from tests.message_texts import has
from understudy.messages import kubernetes_jobs
from understudy.schedulers.kubernetes import names

pytestmark = needs_kubernetes

GROUP = "understudy.dev/v1alpha1"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:understudy-controller"
(CRD,) = documents(KUBERNETES / "crd.yaml")
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
LEAST: Object = {"pods": 1, "template": {"spec": {"containers": [{"name": "w", "image": "none", "command": SLEEPS}]}}}


def a_job(name: str = "j", **spec: object) -> Object:
    return {"apiVersion": GROUP, "kind": "UnderstudyJob", "metadata": {"name": name}, "spec": LEAST | spec}


def wrongs(schema: Object, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield, for every field, values just beyond its bounds."""
    kind = schema["type"]
    if kind == "object":
        for name in schema.get("required", []):
            yield (*way, name), None
        for name, inner in schema.get("properties", {}).items():
            yield from wrongs(inner, (*way, name))
        if schema.get("properties"):
            yield way, "text"
        return
    others: dict[str, object] = {"integer": "1", "number": "1", "boolean": "yes", "string": 1, "array": "text"}
    yield way, others[kind]
    if "minimum" in schema:
        yield way, schema["minimum"] if schema.get("exclusiveMinimum") else schema["minimum"] - 1
    if "maximum" in schema:
        yield way, schema["maximum"] + 1
    if "maxLength" in schema:
        yield way, "x" * (schema["maxLength"] + 1)
    if kind == "array":
        if schema.get("minItems"):
            yield way, []
        if schema["items"]["type"] == "object":
            yield way, [{}]


def with_value(spec: Object, way: tuple[str, ...], value: object) -> Object:
    """None: without it."""
    found = copy.deepcopy(spec)
    place = found
    for word in way[:-1]:
        place = place.setdefault(word, {})
    if value is None:
        place.pop(way[-1], None)
    else:
        place[way[-1]] = value
    return found


def test_the_schema_refuses_what_cannot_be_and_fills_in_the_rest(kubernetes: Cluster) -> None:
    cluster = kubernetes
    jobs = cluster.path("UnderstudyJob", api=GROUP)
    tried = 0
    for way, value in wrongs(SPEC):
        if not way:
            continue
        with pytest.raises(Refused) as refused:
            cluster.api.create(f"{jobs}?dryRun=All", a_job() | {"spec": with_value(LEAST, way, value)})
        assert refused.value.status == 422, (way, value, refused.value)
        assert way[-1] in str(refused.value), (way, value)
        tried += 1
    assert tried > 60
    for name in ("1a", "a.b", "a" * 41):
        with pytest.raises(Refused, match=r"metadata\.name"):
            cluster.api.create(f"{jobs}?dryRun=All", a_job(name))
    made = cluster.api.create(jobs, a_job() | {"status": {"phase": "Training"}})
    assert "status" not in made, "only who may write it says how a job stands"
    assert made["spec"]["spares"] == {"pods": 1, "prepared": 0, "floating": {"pods": 0}}
    assert made["spec"]["evidence"]["conditions"][-1] == {"type": "*GPU*", "status": "True"}
    assert made["spec"]["template"] == LEAST["template"], "nothing is taken out of it"
    status = {"phase": "Training", "step": 70, "generation": 2, "incidents": 1, "spares": 1, "ranks": ["j-0", None]}
    cluster.api.patch(f"{jobs}/j/status", {"status": status})
    with pytest.raises(Refused, match="phase"):
        cluster.api.patch(f"{jobs}/j/status", {"status": {"phase": "Else"}})
    shown = columns(cluster, jobs)
    known = {"Phase": "Training", "Step": 70, "Generation": 2, "Incidents": 1, "Spares": 1, "Pods": 1}
    assert shown == {"Name": "j", **known, "Age": shown["Age"]}
    installed = cluster.get("CustomResourceDefinition", CRD["metadata"]["name"], CRD["apiVersion"])
    if "x-kubernetes-validations" in str(installed):  # servers from 1.25 on
        for change in ({"pods": 2}, {"ranksPerPod": 2}, {"port": 3000}):
            with pytest.raises(Refused, match="cannot be changed"):
                cluster.api.patch(f"{jobs}/j", {"spec": change})
        with pytest.raises(Refused, match="prepared"):
            cluster.api.create(f"{jobs}?dryRun=All", a_job(spares={"pods": 0, "prepared": 1}))
    cluster.delete("UnderstudyJob", "j", GROUP)
    cluster.wait_for(lambda: not cluster.has("UnderstudyJob", "j", GROUP), "the end of the job")


class Tables(Api):
    """Answers as `kubectl get` asks for."""

    def _headers(self, kind: str = "application/json") -> dict[str, str]:
        return {**super()._headers(kind), "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def columns(cluster: Cluster, path: str) -> dict[str, object]:
    """Of the only object there."""
    plane = cluster.plane
    table = Tables(Access(plane.address, PORT, plane.folder / "ca.crt", TOKEN)).get(path)
    (row,) = table["rows"]
    return dict(zip([column["name"] for column in table["columnDefinitions"]], row["cells"], strict=True))


def may(cluster: Cluster, user: str, groups: list[str], verb: str, resource: str, group: str = "", namespace: str = "") -> bool:
    asked = {"group": group, "resource": resource, "verb": verb, "namespace": namespace}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    body |= {"spec": {"user": user, "groups": groups, "resourceAttributes": asked}}  # type: ignore[dict-item]
    return bool(cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


def test_an_installation_works_with_the_rights_that_it_gives(kubernetes: Cluster) -> None:
    """The controllers run in pods of the manifest, with their own account: one leads, creates the objects of a job, and deletes them
    afterwards.
    """
    cluster = kubernetes
    cluster.wait_for(lambda: cluster.api.get(DEPLOYMENT)["status"].get("readyReplicas") == 2, "both, on nodes that were off before")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/understudy-controller"
    assert cluster.api.get(lease)["spec"]["holderIdentity"]
    jobs = cluster.path("UnderstudyJob", api=GROUP)
    cluster.api.create(jobs, a_job("wrong", spares={"pods": 0, "prepared": 1}))
    cluster.wait_for(lambda: cluster.get("UnderstudyJob", "wrong", GROUP).get("status", {}).get("phase") == "Failed", "what is refused")
    assert has(cluster.get("UnderstudyJob", "wrong", GROUP)["status"]["message"], kubernetes_jobs.TOO_MANY_PREPARED, prepared=1)
    token = names.token("j", cluster.api.create(jobs, a_job(orchestrators=1))["metadata"]["uid"])
    for name in ("j-0", "j-1"):
        cluster.wait_for(partial(cluster.has, "Pod", name), f"pod {name}")
        cluster.wait_for_pod(name, "Running")
    for kind, name, api in (
        ("Secret", token, "v1"),
        ("ServiceAccount", "j-orchestrator", "v1"),
        ("Service", "j", "v1"),
        ("RoleBinding", "j-orchestrator", "rbac.authorization.k8s.io/v1"),
        ("NetworkPolicy", "j-orchestrator", "networking.k8s.io/v1"),
        ("Pod", "j-orchestrator-0", "v1"),
    ):
        assert cluster.has(kind, name, api), kind
    assert may(cluster, f"system:serviceaccount:{cluster.namespace}:j-orchestrator", [], "list", "nodes")
    budget = f"/apis/policy/v1beta1/namespaces/{cluster.namespace}/poddisruptionbudgets/j"
    cluster.wait_for(lambda: cluster.api.get(budget)["status"].get("currentHealthy") == 2, "a budget that knows its pods")
    assert cluster.api.get(budget)["status"]["disruptionsAllowed"] == 0
    complaints = [
        each for each in cluster.all_of("Event") if each["involvedObject"]["kind"] == "PodDisruptionBudget" and each["type"] == "Warning"
    ]
    assert not complaints
    with pytest.raises(Refused) as refused:
        cluster.operator.evict(cluster.namespace, "j-0")
    assert refused.value.status == 429
    cluster.delete("UnderstudyJob", "j", GROUP)
    binding = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/understudy:{cluster.namespace}:j"
    cluster.wait_for(lambda: not there(cluster, binding) and not cluster.has("UnderstudyJob", "j", GROUP), "the end of the job")
    cluster.wait_for(lambda: not cluster.has("Secret", token), "the end of what was the job's")


def test_who_may_do_what(kubernetes: Cluster) -> None:
    cluster = kubernetes
    ours, name = "understudy.dev", cluster.namespace
    may_not = [("get", "secrets", ""), ("list", "secrets", ""), ("create", "clusterroles", "rbac.authorization.k8s.io")]
    may_not += [("patch", "nodes", ""), ("delete", "understudyjobs", ours), ("escalate", "clusterroles", "rbac.authorization.k8s.io")]
    for verb, resource, group in may_not:
        assert not may(cluster, ACCOUNT, [], verb, resource, group, name), (verb, resource)
    assert may(cluster, ACCOUNT, [], "create", "pods", "", name) and may(cluster, ACCOUNT, [], "patch", "pods", "", name)
    roles = {"edit": True, "view": False}
    for role, writes in roles.items():
        binding = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"{role}or"}
        metadata = {"name": role}
        cluster.apply(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata, **binding, "subjects": [subject]}
        )
        cluster.wait_for(lambda role=role: may(cluster, f"{role}or", [], "get", "understudyjobs", ours, name), "the right to look")  # type: ignore[misc]
        assert may(cluster, f"{role}or", [], "create", "understudyjobs", ours, name) == writes
        assert not may(cluster, f"{role}or", [], "patch", "understudyjobs/status", ours, name)
    request = {
        "apiVersion": "nvsentinel.nvidia.com/v1alpha1",
        "kind": "DrainRequest",
        "metadata": {"name": "d"},
        "spec": {"nodeName": "w1"},
    }
    assert cluster.apply(request)["spec"] == {"nodeName": "w1"}
    cluster.delete("DrainRequest", "d", "nvsentinel.nvidia.com/v1alpha1")

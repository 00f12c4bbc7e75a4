"""The Kubernetes objects that a job needs in addition to its pods.

They are deleted with the resource, except the permission to read nodes, which is a cluster-wide object.
"""

from __future__ import annotations

import base64
import secrets

from understudy.messages import controller
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path, path
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import Job, owned

RBAC = "rbac.authorization.k8s.io/v1"
NETWORKING = "networking.k8s.io/v1"
ROLE, NODE_ROLE = "understudy-orchestrator", "understudy-node-reader"  # cluster roles of the installation
MORE = 1 << 20  # more pods than any job has
BUDGETS = ("policy/v1", "policy/v1beta1")  # the first that the server has is used


def binding(namespace: str, job: str) -> str:
    """Return the name of the binding for reading nodes, which has no namespace."""
    return f"understudy:{namespace}:{job}"


class NameTaken(SchedulerFailed):
    """An object that the job needs cannot be made, because an unrelated object has its name."""


class Leftover(SchedulerFailed):
    """As `NameTaken`, but Kubernetes is about to remove the object: its owner was a deleted job of this name."""


def make(api: Api, job: Job, budgets: str) -> None:
    """Make missing objects of the job; existing ones stay as they are. `budgets`: the version of PodDisruptionBudgets (`budget_version`).

    Raises `NameTaken` or `Leftover` for the first object that is in the way, after the others were made, and the errors of `Api`.
    """
    problem: SchedulerFailed | None = None
    for where, what in wanted(job, budgets):
        if what["kind"] == "Secret":  # the controller may create secrets, but not read them
            _create(api, where, what)
            continue
        there = _read(api, f"{where}/{what['metadata']['name']}")
        if what["kind"] == "ClusterRoleBinding":
            there = _unless_stale(api, there, Keys(job.group), job.uid)
        elif there is not None and not owned(there, job.uid) and not _serves(there, what):
            problem = problem or _in_the_way(there, what["kind"], job)
        if there is None:
            _create(api, where, what)
    if problem is not None:
        raise problem


def unmake(api: Api, keys: Keys, namespace: str, name: str, uid: str) -> None:
    """Remove the objects of this job that are not deleted with its resource. Those of a later job of the same name stay."""
    there = _read(api, group_path(RBAC, "clusterrolebindings", "", binding(namespace, name)))
    if there is not None and _bound_to(there, keys) in ("", uid):
        _delete(api, there)


def _serves(there: Object, what: Object) -> bool:
    """Return whether an existing object without an owner is sufficient.

    It may be a ServiceAccount that an administrator has prepared, with rights in a cloud or image pull secrets, or be left by `kubectl
    delete --cascade=orphan` of a job of this name.
    """
    wanted = {key: value for key, value in what.items() if key not in ("apiVersion", "kind", "metadata")}
    return not there["metadata"].get("ownerReferences") and _has(there, wanted)


def _has(there: object, wanted: object) -> bool:
    """Return whether the object has all wanted fields; the server adds others."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(_has(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(there, list) and len(there) == len(wanted) and all(map(_has, there, wanted))
    return there == wanted


def _in_the_way(there: Object, kind: str, job: Job) -> SchedulerFailed:
    name = there["metadata"]["name"]
    owners = there["metadata"].get("ownerReferences") or []
    if any((each.get("kind"), each.get("name")) == (names.KIND, job.name) for each in owners):
        return Leftover(controller.LEFT_OVER(kind=kind, name=name, job=job.name))
    return NameTaken(controller.NAME_TAKEN(kind=kind, name=name, namespace=job.namespace))


def _unless_stale(api: Api, there: Object | None, keys: Keys, uid: str) -> Object | None:
    """Remove a stale binding. It has no owner, so Kubernetes does not remove it with a job whose finalizer was removed by hand."""
    if there is None or _bound_to(there, keys) in ("", uid):
        return there
    _delete(api, there)
    return None


def _bound_to(there: Object, keys: Keys) -> str:
    """Return the uid of the job for which the binding was made; "": from an earlier version, which did not write it."""
    return str((there["metadata"].get("labels") or {}).get(keys.uid, ""))


def _read(api: Api, where: str) -> Object | None:
    try:
        return api.read(where)
    except Missing:
        return None


def _delete(api: Api, there: Object) -> None:
    try:
        api.delete(group_path(RBAC, "clusterrolebindings", "", there["metadata"]["name"]), uid=there["metadata"]["uid"])
    except (Missing, Conflict):  # another controller was faster
        return


def budget_version(api: Api) -> str:
    groups = api.read("/apis").get("groups") or []
    known = {each["groupVersion"] for group in groups if group["name"] == "policy" for each in group["versions"]}
    return next((version for version in BUDGETS if version in known), BUDGETS[0])


def _create(api: Api, where: str, what: Object) -> None:
    try:
        api.create(where, what)
    except Conflict:  # it exists, or another controller was faster
        return


def wanted(job: Job, budgets: str) -> list[tuple[str, Object]]:
    """Return the path and content of each object."""
    return [(where, {"apiVersion": version, **what}) for where, version, what in [*_rights(job), *_network(job, budgets)]]


def _rights(job: Job) -> list[tuple[str, str, Object]]:
    account = {"kind": "ServiceAccount", "name": names.account(job.name), "namespace": job.namespace}
    ours = _object(job, "RoleBinding", names.account(job.name), roleRef=_role(ROLE), subjects=[account])
    keys = Keys(job.group)
    metadata = {"name": binding(job.namespace, job.name), "labels": {keys.job: job.name, keys.uid: job.uid}}
    nodes = {"kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": _role(NODE_ROLE), "subjects": [account]}
    token = base64.b64encode(secrets.token_urlsafe(32).encode()).decode()
    secret = _object(job, "Secret", names.token(job.name, job.uid), data={"token": token}, type="Opaque")
    return [
        (path("serviceaccounts", job.namespace), "v1", _object(job, "ServiceAccount", names.account(job.name))),
        (group_path(RBAC, "rolebindings", job.namespace), RBAC, ours),
        (group_path(RBAC, "clusterrolebindings", ""), RBAC, nodes),
        (path("secrets", job.namespace), "v1", secret),
    ]


def _network(job: Job, budgets: str) -> list[tuple[str, str, Object]]:
    keys = Keys(job.group)
    ours = {keys.job: job.name}
    port = {"name": "understudy", "port": job.spec.port, "protocol": "TCP"}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": ours, "ports": [port]}
    workers = {"matchLabels": ours, "matchExpressions": [{"key": keys.role, "operator": "In", "values": [names.ACTIVE, names.SPARE]}]}
    # No pod is evicted by itself: who drains a node cordons it, and the ranks leave. The pods are deleted then. (Of pods that no controller
    # with a scale has, a budget can only count how many must be there: more than there are, whatever their number becomes.)
    budget = _object(job, "PodDisruptionBudget", job.name, spec={"minAvailable": MORE, "selector": workers})
    leading = {"matchLabels": {**ours, keys.role: names.ORCHESTRATOR}}
    ingress = {"from": [{"podSelector": {"matchLabels": ours}}], "ports": [{"port": job.spec.port, "protocol": "TCP"}]}
    spec = {"podSelector": leading, "policyTypes": ["Ingress"], "ingress": [ingress]}
    policy = _object(job, "NetworkPolicy", names.account(job.name), spec=spec)
    return [
        (path("services", job.namespace), "v1", _object(job, "Service", job.name, spec=service)),
        (group_path(budgets, "poddisruptionbudgets", job.namespace), budgets, budget),
        (group_path(NETWORKING, "networkpolicies", job.namespace), NETWORKING, policy),
    ]


def _object(job: Job, kind: str, name: str, **fields: object) -> Object:
    metadata = {"name": name, "namespace": job.namespace, "labels": {Keys(job.group).job: job.name}, "ownerReferences": [job.owner()]}
    return {"kind": kind, "metadata": metadata, **fields}


def _role(name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}

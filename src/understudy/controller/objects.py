"""What a job on Kubernetes needs beside its pods. All of it goes with the resource, but for the right to read nodes, which is the
cluster's.
"""

from __future__ import annotations

import base64
import secrets

from understudy.schedulers.kubernetes import names
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path, path
from understudy.schedulers.kubernetes.names import Keys
from understudy.schedulers.kubernetes.resource import Job

RBAC = "rbac.authorization.k8s.io/v1"
NETWORKING = "networking.k8s.io/v1"
ROLE, NODE_ROLE = "understudy-orchestrator", "understudy-node-reader"  # cluster roles that the installation makes
MORE = 1 << 20  # pods than any job has
BUDGETS = ("policy/v1", "policy/v1beta1")  # the first that the server has


def binding(namespace: str, job: str) -> str:
    """Of the right to read nodes: it is of no namespace."""
    return f"understudy:{namespace}:{job}"


def make(api: Api, job: Job, budgets: str) -> None:
    """What is there already stays as it is: the secret above all. `budgets`: the version of PodDisruptionBudgets (`budget_version`)."""
    for where, what in wanted(job, budgets):
        if what["kind"] == "Secret":  # we may make secrets, and read none
            _create(api, where, what)
            continue
        try:
            api.read(f"{where}/{what['metadata']['name']}")
        except Missing:
            _create(api, where, what)


def unmake(api: Api, namespace: str, job: str) -> None:
    """What does not go by itself."""
    try:
        api.delete(group_path(RBAC, "clusterrolebindings", "", binding(namespace, job)))
    except Missing:
        return


def budget_version(api: Api) -> str:
    groups = api.read("/apis").get("groups") or []
    known = {each["groupVersion"] for group in groups if group["name"] == "policy" for each in group["versions"]}
    return next((version for version in BUDGETS if version in known), BUDGETS[0])


def _create(api: Api, where: str, what: Object) -> None:
    try:
        api.create(where, what)
    except Conflict:  # it is there, or another controller was faster
        return


def wanted(job: Job, budgets: str) -> list[tuple[str, Object]]:
    """Where each is created, and what."""
    return [(where, {"apiVersion": version, **what}) for where, version, what in [*_rights(job), *_network(job, budgets)]]


def _rights(job: Job) -> list[tuple[str, str, Object]]:
    account = {"kind": "ServiceAccount", "name": names.account(job.name), "namespace": job.namespace}
    ours = _object(job, "RoleBinding", names.account(job.name), roleRef=_role(ROLE), subjects=[account])
    metadata = {"name": binding(job.namespace, job.name), "labels": {Keys(job.group).job: job.name}}
    nodes = {"kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": _role(NODE_ROLE), "subjects": [account]}
    token = base64.b64encode(secrets.token_urlsafe(32).encode()).decode()
    return [
        (path("serviceaccounts", job.namespace), "v1", _object(job, "ServiceAccount", names.account(job.name))),
        (group_path(RBAC, "rolebindings", job.namespace), RBAC, ours),
        (group_path(RBAC, "clusterrolebindings", ""), RBAC, nodes),
        (path("secrets", job.namespace), "v1", _object(job, "Secret", names.token(job.name), data={"token": token}, type="Opaque")),
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

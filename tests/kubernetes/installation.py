"""Understudy, installed on the test cluster as an operator would."""

from __future__ import annotations

from tests.kubernetes.cluster import Cluster

SYSTEM = "understudy-system"


CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "understudyjobs.understudy.dev"},
    "spec": {
        "group": "understudy.dev",
        "scope": "Namespaced",
        "names": {"kind": "UnderstudyJob", "plural": "understudyjobs", "singular": "understudyjob"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
RULES = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


def install(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    cluster.apply(CRD)
    rbac = "rbac.authorization.k8s.io/v1"
    for name in ("understudy-orchestrator", "understudy-node-reader"):
        cluster.apply({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": RULES})
    account = {"kind": "ServiceAccount", "name": "understudy-controller", "namespace": SYSTEM}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "understudy-controller", "namespace": SYSTEM}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": "u"}, "roleRef": role, "subjects": [account]}
    cluster.apply(binding)
    container = {"name": "c", "image": "none", "command": ["python", "-P", "-m", "understudy.controller", "--image", "none"]}
    spec = {"serviceAccountName": "understudy-controller", "containers": [container]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "controller", "namespace": SYSTEM}, "spec": spec})

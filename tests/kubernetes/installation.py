"""Understudy, installed on the test cluster as an operator would."""

from __future__ import annotations

from tests.kubernetes.api import Refused
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


PROBE = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "probes.tests.dev"},
    "spec": {
        "group": "tests.dev",
        "scope": "Namespaced",
        "names": {"kind": "Probe", "plural": "probes", "singular": "probe"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def why_no_jobs(cluster: Cluster) -> str:
    """Why this server cannot have resources of ours, or "". One of Kubernetes 1.20 that was built with Go 1.18 or newer, and the libraries
    of its time, dies of the first one that it gets (github.com/modern-go/reflect2 before 1.0.2).
    """
    cluster.apply(PROBE)
    made = {"apiVersion": "tests.dev/v1", "kind": "Probe", "metadata": {"name": "probe", "namespace": "default"}}
    cluster.wait_for(lambda: _served(cluster), "the new kind")
    try:
        cluster.apply(made)
    except OSError:
        cluster.plane.start()
        return "this kube-apiserver dies of custom resources: it was built with a Go that its libraries do not know (reflect2 before 1.0.2)"
    return ""


def _served(cluster: Cluster) -> bool:
    try:
        cluster.api.get("/apis/tests.dev/v1/namespaces/default/probes")
    except Refused:
        return False
    return True


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

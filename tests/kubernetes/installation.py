"""Understudy, installed on the test cluster as an operator would."""

from __future__ import annotations

from functools import partial

from tests.kubernetes.api import Object, Refused
from tests.kubernetes.cluster import Cluster
from tests.kustomize import KUBERNETES, NVSENTINEL, resolved

SYSTEM = "understudy-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/understudy-controller"


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
    """What `kubectl apply -k` installs, with NVSentinel's requests. First each is only tried, as with `--dry-run=server`; namespaces are
    there before, because the server looks for them. It stays for all tests.
    """
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nvsentinel"}}]
    found = sorted([*spaces, *map(as_here, resolved(KUBERNETES, NVSENTINEL))], key=lambda each: each["kind"] != "Namespace")
    for each in found:
        if each["kind"] != "Namespace":
            cluster.api.create(f"{_place(cluster, each)}?dryRun=All", each)
        else:
            cluster.api.create(_place(cluster, each), each)
    for each in found:
        if each["kind"] != "Namespace":
            cluster.api.create(_place(cluster, each), each)
    for each in found:
        if each["kind"] == "CustomResourceDefinition":
            spec = each["spec"]
            where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            cluster.wait_for(partial(there, cluster, where), where)
    cluster.wait_for(lambda: cluster.api.get(DEPLOYMENT)["status"].get("readyReplicas") == 2, "two controllers that are ready")


def as_here(manifest: Object) -> Object:
    """The tests' server is older than the version of one of them."""
    return {**manifest, "apiVersion": "policy/v1beta1"} if manifest["apiVersion"] == "policy/v1" else manifest


def there(cluster: Cluster, path: str) -> bool:
    try:
        cluster.api.get(path)
    except Refused as refused:
        if refused.status == 404:
            return False
        raise
    return True


def _place(cluster: Cluster, manifest: Object) -> str:
    """The list in which it is made."""
    (group, resource), namespaced = cluster._resource(manifest["apiVersion"], manifest["kind"])
    return f"{group}/namespaces/{manifest['metadata']['namespace']}/{resource}" if namespaced else f"{group}/{resource}"

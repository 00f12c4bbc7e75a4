"""Understudy, installed on the test cluster as an operator would, and its controllers."""

from __future__ import annotations

from functools import partial

from tests.kubernetes.api import Object, Refused
from tests.kubernetes.cluster import Cluster
from tests.kustomize import KUBERNETES, NVSENTINEL, resolved

SYSTEM = "understudy-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/understudy-controller"


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
    _wait(cluster, found)


def mend(cluster: Cluster) -> None:
    """As it was, after a test that has installed it itself."""
    found = [as_here(each) for each in resolved(KUBERNETES, NVSENTINEL)]
    for each in found:
        try:
            cluster.api.create(_place(cluster, each), each)
        except Refused as refused:
            if refused.status != 409:
                raise
            cluster.api.patch(f"{_place(cluster, each)}/{each['metadata']['name']}", each)
    _wait(cluster, found)


def _wait(cluster: Cluster, manifests: list[Object]) -> None:
    """Until it serves."""
    for each in manifests:
        if each["kind"] == "CustomResourceDefinition":
            spec = each["spec"]
            where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            cluster.wait_for(partial(there, cluster, where), where)

    def ready() -> bool:
        status = cluster.api.get(DEPLOYMENT)
        observed = status["status"].get("observedGeneration") == status["metadata"]["generation"]
        return bool(observed and status["status"].get("readyReplicas") == status["status"].get("updatedReplicas") == 2)

    cluster.wait_for(ready, "two controllers that are ready")


def controllers(cluster: Cluster) -> list[str]:
    """Their pods."""
    return [found["metadata"]["name"] for found in cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]]


def holder(cluster: Cluster) -> str:
    """The process that leads, whose pod is the first word; "" while none does."""
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/understudy-controller")
    return str(lease["spec"].get("holderIdentity") or "")


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

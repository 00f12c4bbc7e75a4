"""What operators do to nodes by the API: cordon, taint, conditions, drain."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.integration.processes import wait_until
from tests.kubernetes.api import STRATEGIC, Api, Object, Refused
from tests.kubernetes.status import moment


class Operator:
    def __init__(self, api: Api) -> None:
        self._api = api

    def node(self, name: str) -> Object:
        return self._api.get(f"/api/v1/nodes/{name}")

    def condition(self, node: str, kind: str = "Ready") -> str:
        """Its status; "" where there is no such condition."""
        conditions = self.node(node)["status"].get("conditions") or []
        return next((str(found["status"]) for found in conditions if found["type"] == kind), "")

    def taints(self, node: str) -> set[str]:
        """Each as `key=value:effect`."""
        found = self.node(node)["spec"].get("taints") or []
        return {f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in found}

    def cordon(self, node: str) -> None:
        self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def uncordon(self, node: str) -> None:
        self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})

    def taint(self, node: str, key: str, effect: str, value: str = "") -> None:
        """In place of those that have its key and effect."""
        self._set_taints(
            node, lambda taint: (taint["key"], taint["effect"]) != (key, effect), {"key": key, "value": value, "effect": effect}
        )

    def untaint(self, node: str, key: str) -> None:
        self._set_taints(node, lambda taint: taint["key"] != key)

    def _set_taints(self, node: str, stays: Callable[[Object], bool], *more: Object) -> None:
        """Change the node's taints, which are one list with other writers: starts from the present list, and tries again if that was not
        the newest.
        """
        while True:
            found = self.node(node)
            taints = [taint for taint in found["spec"].get("taints") or [] if stays(taint)] + list(more)
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                self._api.patch(f"/api/v1/nodes/{node}", {"metadata": version, "spec": {"taints": taints}})
                return
            except Refused as refused:
                if refused.status != 409:
                    raise

    def set_condition(self, node: str, kind: str, status: str, reason: str = "ATest", message: str = "") -> None:
        """As a node problem detector does."""
        times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), moment(time.time()))
        condition = {"type": kind, "status": status, "reason": reason, "message": message, **times}
        self._api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}}, STRATEGIC)

    def remove_condition(self, node: str, kind: str) -> None:
        self._api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [{"type": kind, "$patch": "delete"}]}}, STRATEGIC)

    def evict(self, namespace: str, pod: str) -> None:
        """Raises `Refused` with status 429 while a PodDisruptionBudget is against it."""
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        self._api.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", eviction)

    def pods_on(self, node: str) -> list[Object]:
        found: list[Object] = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"] or []
        return found

    def drain(self, node: str, limit: float = 120.0) -> None:
        """`kubectl drain --ignore-daemonsets --delete-emptydir-data --force`: cordons it, evicts every pod, and waits until they are gone.

        It leaves out: the questions that kubectl asks about pods without a controller or with an emptyDir, its own grace period, and its
        pause of five seconds before an eviction that was refused is tried again.
        """
        self.cordon(node)

        def empty() -> bool:
            pods = [pod for pod in self.pods_on(node) if not _of_daemon_set(pod)]
            for pod in pods:
                if not pod["metadata"].get("deletionTimestamp"):
                    try:
                        self.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])
                    except Refused as refused:
                        if refused.status not in (404, 429):
                            raise
            return not pods

        wait_until(empty, f"the drain of {node}", limit)


def _of_daemon_set(pod: Object) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences") or [])

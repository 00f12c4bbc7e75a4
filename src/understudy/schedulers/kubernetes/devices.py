"""Taints of devices (dynamic resource allocation): the devices with taints, and the pods with these devices.

A driver writes them into its `ResourceSlice`, an administrator into a `DeviceTaintRule`. A cluster without these kinds has none.
"""

from __future__ import annotations

from understudy.schedulers.kubernetes.api import Api, Missing, Object, group_path
from understudy.schedulers.kubernetes.informer import Informer
from understudy.schedulers.kubernetes.node_health import Trouble, of_devices

GROUP = "resource.k8s.io"
AGAINST = ("NoSchedule", "NoExecute")


class Devices:
    def __init__(self, api: Api, namespace: str) -> None:
        """Watch the kinds that the server has. Raises `SchedulerFailed`."""
        version = _version(api)
        self.watched: list[Informer] = []
        self._kinds: dict[str, Informer] = {}
        for kind, where in (("resourceslices", ""), ("devicetaintrules", ""), ("resourceclaims", namespace)):
            if kind in version:
                self._kinds[kind] = Informer(api, group_path(f"{GROUP}/{version[kind]}", kind, where))
        self.watched = list(self._kinds.values())

    def of(self, pod: Object) -> list[Trouble]:
        if not self._kinds or not pod["spec"].get("resourceClaims"):
            return []
        claims = {claim["metadata"]["name"]: claim for claim in self._objects("resourceclaims")}
        return of_devices(pod, claims, tainted(self._objects("resourceslices"), self._objects("devicetaintrules")))

    def _objects(self, kind: str) -> list[Object]:
        return self._kinds[kind].objects() if kind in self._kinds else []


def tainted(slices: list[Object], rules: list[Object]) -> dict[tuple[str, str, str], list[Object]]:
    """Return the tainted devices (driver, pool, device) with their taints."""
    found: dict[tuple[str, str, str], list[Object]] = {}
    for each in slices:
        spec = each["spec"]
        for device in spec.get("devices") or []:
            key = (str(spec.get("driver")), str((spec.get("pool") or {}).get("name")), str(device.get("name")))
            taints = [*(device.get("taints") or []), *((device.get("basic") or {}).get("taints") or [])]
            taints += [rule["spec"].get("taint") or {} for rule in rules if _selects(rule["spec"].get("deviceSelector") or {}, key)]
            found[key] = [taint for taint in taints if taint.get("effect") in AGAINST]
    return {key: taints for key, taints in found.items() if taints}


def _selects(selector: Object, device: tuple[str, str, str]) -> bool:
    """Return whether the rule selects the device. An empty selector selects none here: a rule for all devices is no evidence
    against one.
    """
    wanted = [selector.get(field) for field in ("driver", "pool", "device")]
    return any(wanted) and all(not want or want == value for want, value in zip(wanted, device, strict=True))


def _version(api: Api) -> dict[str, str]:
    """Return, by kind, the newest version that the server has."""
    try:
        group = api.read(f"/apis/{GROUP}")
    except Missing:
        return {}
    found: dict[str, str] = {}
    for each in group.get("versions") or []:  # the server's preferred version first
        for kind in api.read(f"/apis/{each['groupVersion']}").get("resources") or []:
            found.setdefault(kind["name"], each["version"])
    return found

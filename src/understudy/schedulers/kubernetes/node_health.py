"""Evidence of Kubernetes against the node of a pod: cordons, taints, conditions, taints of its devices, its own deletion.

Taints and conditions about a node's health have names that depend on the cluster: patterns of the job's resource (`Evidence`) define which
ones count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from understudy.common.bounds import plain
from understudy.messages import kubernetes_jobs
from understudy.schedulers.base import NodeSeen
from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.job_status import moment
from understudy.schedulers.kubernetes.resource import Evidence
from understudy.schedulers.kubernetes.tolerations import came_after, identity, tolerates


@dataclass(frozen=True)
class Trouble:
    kind: str  # a fixed word for each kind
    reason: str  # as text
    since: float = 0.0  # unix time; 0: unknown


def of_pod(pod: Object, leave: str) -> Trouble | None:
    """Return the trouble of a pod that is deleted, evicted or preempted, or whose ranks must leave it according to its annotation
    `leave`.
    """
    metadata = pod["metadata"]
    asked = (metadata.get("annotations") or {}).get(leave)
    if asked is not None and "deletionTimestamp" not in metadata:
        return Trouble("asked", kubernetes_jobs.POD_TO_BE_LEFT(reason=plain(asked)))
    if "deletionTimestamp" not in metadata:
        return None
    why = [c for c in pod.get("status", {}).get("conditions") or [] if c.get("type") == "DisruptionTarget" and c.get("status") == "True"]
    reason = f": {plain(why[0].get('reason', ''))} {plain(why[0].get('message', ''))}".rstrip() if why else ""
    grace = int(metadata.get("deletionGracePeriodSeconds") or 0)
    return Trouble("deleted", kubernetes_jobs.POD_DELETED(reason=reason), moment(metadata["deletionTimestamp"]) - grace)


def of_node(node: Object, evidence: Evidence, tolerated: Collection[str] = ()) -> list[Trouble]:
    """Return the troubles of a node. `tolerated`: taints that do not count (`tolerations.identity`)."""
    found = []
    spec, status = node.get("spec") or {}, node.get("status") or {}
    name = node["metadata"]["name"]
    cordons = [taint for taint in spec.get("taints") or [] if taint.get("key") == "node.kubernetes.io/unschedulable"]
    if evidence.cordon and spec.get("unschedulable") and not any(identity(each) in tolerated for each in cordons):
        added = [moment(each.get("timeAdded")) for each in cordons]
        found.append(Trouble("cordon", kubernetes_jobs.CORDONED(node=name), next(iter(added), 0.0)))
    for taint in spec.get("taints") or []:
        text = shown(taint)
        counts = matches(text, evidence.taints) and not matches(text, evidence.ignored_taints)
        if counts and identity(taint) not in tolerated:
            reason = kubernetes_jobs.TAINTED(node=name, taint=plain(text))
            found.append(Trouble("taint", reason, moment(taint.get("timeAdded"))))
    for condition in status.get("conditions") or []:
        kind, value = str(condition.get("type")), str(condition.get("status"))
        if any(fnmatchcase(kind, each.type) and value == each.status for each in evidence.conditions):
            message = f": {plain(condition.get('message') or condition.get('reason') or '')}"
            reason = kubernetes_jobs.CONDITION(node=name, condition=plain(kind), status=plain(value), message=message)
            found.append(Trouble("condition", reason, moment(condition.get("lastTransitionTime"))))
    return found


def of_devices(pod: Object, claims: Mapping[str, Object], tainted: Mapping[tuple[str, str, str], Sequence[Object]]) -> list[Trouble]:
    """Return the troubles of a pod's devices, without taints that the claim tolerates, unless they are newer than the pod.

    `claims`: the resource claims of its namespace by name. `tainted`: devices (driver, pool, device) and their taints.
    """
    found = []
    for entry in pod.get("status", {}).get("resourceClaimStatuses") or pod.get("spec", {}).get("resourceClaims") or []:
        claim = claims.get(entry.get("resourceClaimName") or "")
        results = ((((claim or {}).get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or []
        for result in results:
            device = (str(result.get("driver")), str(result.get("pool")), str(result.get("device")))
            tolerations = result.get("tolerations") or []
            counts = [each for each in tainted.get(device, ()) if not tolerates(tolerations, each) or came_after(each, pod)]
            if counts:
                taints = plain(", ".join(map(shown, counts)))
                found.append(Trouble("device", kubernetes_jobs.DEVICE_TAINTED(device=plain("/".join(device)), taint=taints)))
    return found


def seen(pod: Object, troubles: Iterable[Trouble]) -> NodeSeen:
    """Return the node of a pod. `troubles`: all of them; the first one gives the kind."""
    all_of_them = list(troubles)
    node = pod.get("spec", {}).get("nodeName") or ""
    state = f"{pod.get('status', {}).get('phase', 'Unknown')} on {node}" if node else "Pending"
    if not all_of_them:
        return NodeSeen(pod["metadata"]["name"], state)
    first = all_of_them[0]
    reason = "; ".join(dict.fromkeys(trouble.reason for trouble in all_of_them))
    return NodeSeen(pod["metadata"]["name"], state, first.kind, True, reason, first.since)


def matches(text: str, patterns: Iterable[str]) -> bool:
    """Return whether a taint matches a pattern. `text`: KEY=VALUE:EFFECT. A pattern may leave out the value, and the effect."""
    key, _, rest = text.partition("=")
    value, _, effect = rest.rpartition(":")
    forms = (f"{key}={value}:{effect}", f"{key}={value}", f"{key}:{effect}", key)
    return any(fnmatchcase(form, pattern) for pattern in patterns for form in forms)


def shown(taint: Object) -> str:
    return f"{taint.get('key', '')}={taint.get('value') or ''}:{taint.get('effect', '')}"

"""Decide which taints are no evidence against a pod's node, because the pod was put there in spite of them.

A cluster keeps other work off its GPU nodes by a taint, which the pods of jobs tolerate: it does not indicate a node's health. So a taint
counts if the pod does not tolerate it, or if it came after the pod had started there. Kubernetes writes the time only into some taints, so
the node's taints when its pod was first seen are kept, in an annotation of the pod, for the next orchestrator that leads.

Known limit: if a pod has started long before it is first seen, as after an upgrade from a version that wrote no annotation, a taint without
a time that came in between does not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.job_status import moment
from understudy.schedulers.kubernetes.names import Keys

INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
MOST = 100  # taints of a node that are kept


def tolerates(tolerations: Sequence[Object], taint: Object) -> bool:
    """Return whether a pod may stay on a node with this taint.

    The first toleration that matches counts, as for Kubernetes' taint manager: with `tolerationSeconds`, the pod is evicted after these.
    """
    matching = next((each for each in tolerations if matches(each, taint)), None)
    return matching is not None and (taint.get("effect") != "NoExecute" or matching.get("tolerationSeconds") is None)


def matches(toleration: Object, taint: Object) -> bool:
    """Return whether the toleration matches this taint: `ToleratesTaint` of k8s.io/api/core/v1.

    An empty effect or key matches every one. The operator is Exists, Equal, which is the default, or, in clusters that have them, Lt and
    Gt, which compare whole numbers.
    """
    for field in ("effect", "key"):
        if toleration.get(field) and toleration[field] != taint.get(field):
            return False
    operator, wanted, value = toleration.get("operator") or "Equal", str(toleration.get("value") or ""), str(taint.get("value") or "")
    if operator in ("Lt", "Gt"):
        if not (INTEGER.fullmatch(wanted) and INTEGER.fullmatch(value)):
            return False
        return int(value) < int(wanted) if operator == "Lt" else int(value) > int(wanted)
    return operator == "Exists" or (operator == "Equal" and wanted == value)


def came_after(taint: Object, pod: Object) -> bool:
    """Return whether a taint is known to be newer than the pod. Taints of devices always have a time, those of nodes sometimes."""
    started = (pod.get("status") or {}).get("startTime")
    return bool(started) and moment(taint.get("timeAdded")) > moment(started)


def identity(taint: Object) -> str:
    """Return a text that two taints share only if they are the same one. One that was removed and added again has another time, if any."""
    return json.dumps([taint.get(field) or "" for field in ("key", "value", "effect", "timeAdded")])


class Tolerated:
    """The taints that pods tolerated when they were first seen."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._known: dict[str, frozenset[str]] = {}  # by the uid of a pod: identities

    def of(self, pod: Object, taints: Collection[Object]) -> frozenset[str]:
        """Return the identities of those that do not count. `taints`: the present ones of its node. One that disappears counts when it
        comes back.
        """
        uid = pod["metadata"]["uid"]
        now = frozenset(identity(each) for each in taints if tolerates(pod["spec"].get("tolerations") or [], each))
        if uid not in self._known:
            noted = _noted((pod["metadata"].get("annotations") or {}).get(self._keys.tolerated))
            self._known[uid] = frozenset(identity(each) for each in taints if not came_after(each, pod)) if noted is None else noted
        self._known[uid] &= now
        return self._known[uid]

    def annotation(self, pod: Object) -> dict[str, str]:
        """Return the annotation for the pod; nothing while its node was not examined."""
        known = self._known.get(pod["metadata"]["uid"])
        return {} if known is None else {self._keys.tolerated: json.dumps(sorted(known)[:MOST])}

    def forget(self, pods: Collection[str]) -> None:
        """Forget all but these pods, by uid."""
        self._known = {uid: known for uid, known in self._known.items() if uid in pods}


def _noted(text: str | None) -> frozenset[str] | None:
    """Return the identities of the annotation; None for a pod that was not seen before, or whose annotation was changed by others."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return frozenset(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None

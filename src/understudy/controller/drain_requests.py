"""NVSentinel's custom drain: a `DrainRequest` names a node whose work must leave; its condition `DrainComplete` reports that it has.

The ranks leave as for any other reason: pods there get the annotation that orchestrators take as evidence. A request can be cancelled at
any time by deleting it. NVSentinel makes requests from a template of the installation, and waits for the condition
(`deploy/kubernetes/nvsentinel`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from understudy.common.bounds import plain
from understudy.messages import controller
from understudy.schedulers.kubernetes import job_status, names
from understudy.schedulers.kubernetes.api import Api, Conflict, Missing, Object, group_path, path
from understudy.schedulers.kubernetes.informer import Informer
from understudy.schedulers.kubernetes.names import Keys

PLURAL = "drainrequests"
COMPLETE = "DrainComplete"
BY = "DrainRequest "  # the beginning of our annotations


class DrainRequests:
    def __init__(self, api: Api, group: str, keys: Keys, changed: Callable[[Object | None], None]) -> None:
        """Watch the requests. `group`: with its version."""
        self._api = api
        self._group = group
        self._keys = keys
        self._requests = Informer(api, group_path(group, PLURAL, ""), changed)

    def turn(self, pods: Sequence[Object]) -> None:
        """Annotate pods and complete requests. `pods`: all of ours. Raises `SchedulerFailed`."""
        workers = [pod for pod in pods if pod["metadata"]["labels"].get(self._keys.role) != names.ORCHESTRATOR]
        running = [pod for pod in workers if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        wanted: dict[str, str] = {}  # by the uid of a pod
        for request in self._requests.objects():
            affected = [pod for pod in running if _means(request, pod)]
            metadata, spec = request["metadata"], request.get("spec") or {}
            reason = spec.get("reason") or spec.get("recommendedAction") or spec.get("checkName") or "no reason is given"
            for pod in affected:
                wanted[pod["metadata"]["uid"]] = f"{BY}{metadata['namespace']}/{metadata['name']}: {plain(str(reason))}"[:1000]
            if not affected and not _is_complete(request):
                self._complete(request)
        for pod in running:
            there = (pod["metadata"].get("annotations") or {}).get(self._keys.leave)
            want = wanted.get(pod["metadata"]["uid"])
            if want != there and (want is not None or (there or "").startswith(BY)):
                self._annotate(pod, want)

    def _annotate(self, pod: Object, text: str | None) -> None:
        metadata = pod["metadata"]
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {self._keys.leave: text}}}
        try:
            self._api.patch(path("pods", metadata["namespace"], metadata["name"]), change)
        except (Missing, Conflict):  # the next time
            return

    def _complete(self, request: Object) -> None:
        metadata = request["metadata"]
        others = [each for each in (request.get("status") or {}).get("conditions") or [] if each.get("type") != COMPLETE]
        ours = {
            "type": COMPLETE,
            "status": "True",
            "reason": "NoRanksThere",
            "message": controller.NO_RANKS_THERE(),
            "lastTransitionTime": job_status.stamp(time.time()),
        }
        where = group_path(self._group, PLURAL, metadata["namespace"], metadata["name"], "status")
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": {"conditions": [*others, ours]}}
        try:
            self._api.patch(where, change)
        except (Missing, Conflict):
            return


def _means(request: Object, pod: Object) -> bool:
    spec = request.get("spec") or {}
    if pod["spec"].get("nodeName") != spec.get("nodeName"):
        return False
    named = spec.get("podsToDrain") or {}
    return not named or pod["metadata"]["name"] in (named.get(pod["metadata"]["namespace"]) or [])


def _is_complete(request: Object) -> bool:
    conditions = (request.get("status") or {}).get("conditions") or []
    return any(each.get("type") == COMPLETE and each.get("status") == "True" for each in conditions)

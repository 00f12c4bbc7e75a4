"""What the controller shows on a job's resource: events, and a condition `CreationFailed` for objects that cannot be created."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from understudy.common.bounds import plain
from understudy.messages import controller as messages
from understudy.schedulers.base import SchedulerFailed
from understudy.schedulers.kubernetes import job_status
from understudy.schedulers.kubernetes.api import Api, Object, path
from understudy.schedulers.kubernetes.resource import Job

KIND = "CreationFailed"
NAMED = 5  # pods in the text of an event


class Reports:
    """Writes events once, so they may get lost, and the condition until it is there."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def show_created(self, job: Job, pods: Sequence[Object]) -> None:
        """Show an event for created pods. `pods`: as the server returned them."""
        if not pods:
            return
        known = [pod["metadata"]["name"] for pod in pods]
        more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
        self.show_event(job.raw, "Normal", "PodsCreated", messages.PODS_CREATED(pods=", ".join(known[:NAMED]) + more))

    def show_failure(self, job: Job, where: str, reason: str, problem: str) -> None:
        """Show a failure. `where`: the path of the job's resource. `reason`: a word for programs. Raises the errors of `Api`."""
        message = plain(problem)[:1000]
        before = job_status.condition(job.status, KIND)
        if before.get("status") == "True" and (before.get("reason"), before.get("message")) == (reason, message):
            return
        self._write(job, where, True, reason, message)
        known = before.get("status") == "True" and before.get("reason") == reason
        if reason == "Refused":
            known = known and job_status.without_numbers(before.get("message", "")) == job_status.without_numbers(message)
        if not known and reason != "LeftoverObjects":  # which is over in a moment
            self.show_event(job.raw, "Warning", KIND, message)

    def show_success(self, job: Job, where: str) -> None:
        """Clear a shown failure. Raises the errors of `Api`."""
        if job_status.condition(job.status, KIND).get("status") == "True":
            self._write(job, where, False, "Created", messages.ALL_CREATED())

    def show_event(self, raw: Object, kind: str, reason: str, message: str) -> None:
        """Show an event. `raw`: the resource. `kind`: "Normal" or "Warning"."""
        now = time.time()
        metadata = raw["metadata"]
        name = f"{metadata['name']}.{metadata['uid'][:8]}.{time.time_ns():x}"
        with suppress(SchedulerFailed):
            self._api.create(path("events", metadata["namespace"]), job_status.event_of(raw, name, kind, reason, message, now))

    def _write(self, job: Job, where: str, failed: bool, reason: str, message: str) -> None:
        """Write the condition to the current resource, whose status may have changed since the job was read."""
        now = self._api.read(where)
        if now["metadata"]["uid"] != job.uid:
            return
        metadata = {"resourceVersion": now["metadata"]["resourceVersion"]}
        conditions = job_status.with_condition(now.get("status") or {}, KIND, failed, reason, message, time.time())
        self._api.patch(f"{where}/status", {"metadata": metadata, "status": {"conditions": conditions}})

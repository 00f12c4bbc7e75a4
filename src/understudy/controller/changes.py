"""The set of jobs to reconcile: watching threads add changed jobs, until the controller's loop takes them."""

from __future__ import annotations

import threading
import time

from understudy.schedulers.kubernetes.api import Object
from understudy.schedulers.kubernetes.names import Keys


class Changes:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._jobs: set[tuple[str, str]] = set()
        self._later: dict[tuple[str, str], float] = {}  # jobs, and when they are due (CLOCK_MONOTONIC)
        self._all = True
        self._there = threading.Condition()
        self._last = 0.0  # the last full reconciliation (CLOCK_MONOTONIC)

    def of_job(self, job: Object | None) -> None:
        self._note(job, (job or {}).get("metadata", {}).get("name", ""))

    def of_pod(self, pod: Object | None) -> None:
        self._note(pod, (pod or {}).get("metadata", {}).get("labels", {}).get(self._keys.job, ""))

    def of_request(self, request: Object | None) -> None:
        with self._there:
            self._there.notify()

    def of_job_later(self, job: Object, seconds: float) -> None:
        """Add the job again after this time, whether it changes or not."""
        with self._there:
            key = (job["metadata"].get("namespace", ""), job["metadata"]["name"])
            self._later[key] = time.monotonic() + seconds
            self._there.notify()

    def take(self, most: float) -> set[tuple[str, str]] | None:
        """Wait for changed jobs and return them; None: all, because the last time was `most` seconds ago."""
        with self._there:
            left = min([self._last + most, *self._later.values()]) - time.monotonic()
            if not (self._jobs or self._all) and left > 0:
                self._there.wait(left)
            due = {key for key, at in self._later.items() if at <= time.monotonic()}
            self._jobs |= due
            self._later = {key: at for key, at in self._later.items() if key not in due}
            whole = self._all or time.monotonic() - self._last >= most
            jobs, self._jobs, self._all = self._jobs, set(), False
            if whole:
                self._last = time.monotonic()
            return None if whole else jobs

    def _note(self, what: Object | None, job: str) -> None:
        with self._there:
            if what is None:
                self._all = True
            else:
                self._jobs.add((what["metadata"].get("namespace", ""), job))
            self._there.notify()

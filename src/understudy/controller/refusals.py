"""Delay the next attempt for jobs whose pods with workers are rejected.

Each attempt reserves a number in the job's status. That write is a change of the job, which causes another reconciliation, so without a
delay the next attempt would follow at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from understudy.schedulers.base import SchedulerFailed

FIRST, MOST = 1.0, 30.0  # seconds after the first rejection, and the maximum: doubled each time


@dataclass
class _Refused:
    error: SchedulerFailed
    delay: float
    due: float  # on the clock


class Refusals:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock  # seconds
        self._known: dict[str, _Refused] = {}  # by the uid of a job

    def note(self, uid: str, error: SchedulerFailed) -> float:
        """Record that a pod was rejected. Return the seconds until the next attempt."""
        before = self._known.get(uid)
        delay = FIRST if before is None else min(2 * before.delay, MOST)
        self._known[uid] = _Refused(error, delay, self._clock() + delay)
        return delay

    def pending(self, uid: str) -> SchedulerFailed | None:
        """Return why the last pod was rejected, or None if pods may be created now."""
        found = self._known.get(uid)
        return found.error if found is not None and self._clock() < found.due else None

    def forget(self, uid: str) -> None:
        self._known.pop(uid, None)

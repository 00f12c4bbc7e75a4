"""Measures the part of its time in which a worker computes, and does not wait for others, by samples during the training.

Ranks that train together need the same time for a step, however slow one of them is: the others wait for it. The time that each spends
by itself distinguishes them, and the orchestrator compares it (`detectors.straggler`).

Some five times a second a separate thread checks whether the main thread runs. If that sleeps, and some thread waits for another worker
(`Handlers.waits`), this worker waits; else it is at work: it computes, reads a file, waits for its loader. A thread that waits in
parallel with a computing main thread (for an all-reduce after the backward pass) makes no difference: a rank that is ahead by a little
has one all the time. Each sample counts for the time since the one before, so one that is late, because the process was stopped or had
no processor, counts for all that time. The interval is random, because a step that takes just as long would always be sampled at the
same place.

A sample costs some fifty microseconds while the main thread computes, most of them for a turn of the interpreter's lock. Only while
that one sleeps are all threads checked, for some hundred to three hundred microseconds, which delays nothing
(docs/evidence/benchmarks.md).

With NCCL the main thread shows nothing, because kernels wait in its place. If the device is timed instead (`collectives.device_times`),
the same thread takes the measurements: each counts for the time in transactions since the one before (`DeviceOwnTime`).

Known limits: a rank that waits for others in a way of the script's own (a file, a store) counts as at work. If waits cannot be known
(NCCL whose device is not timed, another platform) nothing is measured, and the page shows that. A main thread that sleeps while another
one computes for it and a collective is under way counts as waiting.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

from understudy.common.page_view import Activity
from understudy.links.page import PageWriter

INTERVAL = 0.2  # seconds between two samples, on average
_COUNTED = (Activity.RUNNING, Activity.VOTED, Activity.COMMITTING, Activity.IDLE)


def main_thread_runs() -> bool:
    """Return whether the main thread has a processor, or could use one. Raises `OSError` if the kernel does not report it."""
    file = os.open(f"/proc/self/task/{os.getpid()}/syscall", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 16) == b"running\n"
    finally:
        os.close(file)


class _Looking:
    """Takes samples on a separate thread."""

    def __init__(self) -> None:
        self._looked = time.monotonic()

    def start(self) -> None:
        threading.Thread(target=self._run, name="understudy-own-time", daemon=True).start()

    def _run(self) -> None:
        chance = random.Random()  # the script's own streams are not touched
        while True:
            time.sleep(INTERVAL * chance.uniform(0.5, 1.5))
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Take a sample. `now`: CLOCK_MONOTONIC."""
        passed, self._looked = now - self._looked, now
        self._look(passed)

    def _look(self, passed: float) -> None:
        """Count a sample. `passed`: seconds since the sample before."""
        raise NotImplementedError


class OwnTime(_Looking):
    """Measures on the host. `at_work`: whether this worker waits for no other one, or None if that cannot be known. Called on the thread
    that is started here.
    """

    def __init__(self, page: PageWriter, at_work: Callable[[], bool | None]) -> None:
        super().__init__()
        self._page = page
        self._at_work = at_work
        self._own = dict.fromkeys(Activity, 0.0)

    def _look(self, passed: float) -> None:
        activity = self._page.activity
        if activity not in _COUNTED:
            return
        found = self._at_work()
        if found is None:
            self._page.looked_in_vain()
            return
        if found:
            self._own[activity] += passed
        self._page.looked(*(int(self._own[one] * 1000) for one in (Activity.RUNNING, Activity.COMMITTING, Activity.IDLE)))


class DeviceOwnTime(_Looking):
    """Measures on the device. `share`: the part of a transaction, up to its vote, in which this worker's device waited for no other one;
    None if none was measured since the last call. Called on the thread that is started here. Other activities are not known, and show
    nothing.
    """

    def __init__(self, page: PageWriter, share: Callable[[], float | None]) -> None:
        super().__init__()
        self._page = page
        self._share = share
        self._running = 0.0  # seconds in transactions since the last measurement
        self._own = 0.0

    def _look(self, passed: float) -> None:
        if self._page.activity is Activity.RUNNING:
            self._running += passed
        share = self._share()
        if share is None:
            return
        self._own, self._running = self._own + share * self._running, 0.0
        self._page.looked(int(self._own * 1000), 0, 0)

"""How much of its time a worker computes itself, and does not wait for others: looked up now and then, beside the training.

Ranks that train together need the same time for a step, however slow one of them is: the others wait for it. What tells them
apart is the time that each spends by itself, and that is what the orchestrator compares (`detectors.straggler`).

Some five times a second a thread of its own looks whether the main thread runs. If that sleeps, and some thread waits for another worker
(`Handlers.waits`), this worker waits; else it is at work: it computes, reads a file, waits for its loader. A thread that waits beside a
main thread that computes (for an all-reduce behind the backward pass) makes no difference: a rank that is ahead by a little has one all
the time. Each look stands for the time since the one before, so one that is late, because the process was stopped or had no
processor, counts for all that time. The time between two is drawn, because a step that takes just as long would always be seen at the
same place.

A look costs some fifty microseconds while the main thread computes, most of them for a turn of the interpreter's lock. Only while that one
sleeps are all threads looked at, for some hundred to three hundred microseconds, which is in nobody's way (docs/benchmarks.md).

Known limits: a rank that waits for others in a way of the script's own (a file, a store) is taken for one at work. Where waits cannot be
known (NCCL, another platform) nothing is, and the page says so. A main thread that sleeps while another one computes for it and a
collective is under way is taken for one that waits.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

from understudy.common.page_view import Activity
from understudy.links.page import PageWriter

INTERVAL = 0.2  # seconds between two looks, on average
_COUNTED = (Activity.RUNNING, Activity.VOTED, Activity.COMMITTING, Activity.IDLE)


def main_thread_runs() -> bool:
    """Whether it has a processor, or could use one. Raises `OSError` where the kernel does not tell."""
    file = os.open(f"/proc/self/task/{os.getpid()}/syscall", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 16) == b"running\n"
    finally:
        os.close(file)


class OwnTime:
    """`at_work`: whether this worker waits for nobody else, or None if that cannot be known. Asked on the thread that is started here."""

    def __init__(self, page: PageWriter, at_work: Callable[[], bool | None]) -> None:
        self._page = page
        self._at_work = at_work
        self._own = dict.fromkeys(Activity, 0.0)
        self._looked = time.monotonic()

    def start(self) -> None:
        threading.Thread(target=self._run, name="understudy-own-time", daemon=True).start()

    def _run(self) -> None:
        chance = random.Random()  # the script's own streams are not touched
        while True:
            time.sleep(INTERVAL * chance.uniform(0.5, 1.5))
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """`now`: CLOCK_MONOTONIC."""
        passed, self._looked = now - self._looked, now
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

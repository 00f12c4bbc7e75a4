"""Looks for how many operations a worker that stands still waits for others (`Handlers.waits`).

As long as the worker gets on, nothing is looked up. Then it is once a second, on a thread of its own: it costs some 20 microseconds for
each thread of the process, and much more where the main thread does not stop computing in Python and gives the interpreter's lock away only
every few milliseconds. An abort, which the control thread hears, must not wait for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from understudy.common.page_view import UNKNOWN

STILL = 1.0  # seconds without progress until the first look, and between two


class WaitProbe:
    def __init__(self) -> None:
        self._seen = (0.0, UNKNOWN)  # what was looked up, and since when the worker stood still then
        self._looks_again_at = 0.0
        self._thread: threading.Thread | None = None

    def waits(self, moved_at: float, look: Callable[[float], int]) -> int:
        """What `look` has given last since the worker has made progress, at `moved_at` (CLOCK_MONOTONIC), or `UNKNOWN`. `look`
        gets the seconds since then."""
        now = time.monotonic()
        if now > max(moved_at + STILL, self._looks_again_at) and not (self._thread and self._thread.is_alive()):
            self._looks_again_at = now + STILL
            self._thread = threading.Thread(target=self._look, args=(moved_at, look), name="understudy-lookout", daemon=True)
            self._thread.start()
        since, waits = self._seen
        return waits if since == moved_at else UNKNOWN

    def _look(self, moved_at: float, look: Callable[[float], int]) -> None:
        self._seen = (moved_at, look(time.monotonic() - moved_at))

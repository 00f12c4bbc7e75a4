"""Finds for how many operations a worker without progress waits for others (`Handlers.waits`), and at which line of the script it is.

As long as the worker makes progress, nothing is checked. Then it is once a second, on a separate thread: it costs some 20 microseconds
for each thread of the process, and much more if the main thread does not stop computing in Python and releases the interpreter's lock
only every few milliseconds. An abort, which the control thread receives, must not wait for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from understudy.common.page_view import UNKNOWN
from understudy.links.page import PageWriter
from understudy.worker.process.where import main_thread

STILL = 1.0  # seconds without progress until the first check, and between two


class WaitProbe:
    def __init__(self, page: PageWriter) -> None:
        self._page = page
        self._seen = (0.0, UNKNOWN)  # the last result, and since when the worker made no progress then
        self._looks_again_at = 0.0
        self._thread: threading.Thread | None = None

    def waits(self, moved_at: float, look: Callable[[float], int] | None) -> int:
        """Return the last result of `look` since the worker has made progress, at `moved_at` (CLOCK_MONOTONIC), or `UNKNOWN`. `look` gets
        the seconds since then; None: nothing can be waited for yet.
        """
        now = time.monotonic()
        if now > max(moved_at + STILL, self._looks_again_at) and not (self._thread and self._thread.is_alive()):
            self._looks_again_at = now + STILL
            self._thread = threading.Thread(target=self._look, args=(moved_at, look), name="understudy-lookout", daemon=True)
            self._thread.start()
        since, waits = self._seen
        return waits if since == moved_at else UNKNOWN

    def _look(self, moved_at: float, look: Callable[[float], int] | None) -> None:
        since, place = self._page.since, main_thread()
        if place is not None and self._page.since == since:
            self._page.stands(*place)
        self._seen = (moved_at, look(time.monotonic() - moved_at) if look is not None else UNKNOWN)

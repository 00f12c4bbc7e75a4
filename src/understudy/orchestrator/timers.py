"""The machine's timers, which stop while the job pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """The timers; belongs to the running event loop. `expired` is called with the name of each that runs out."""

    def __init__(self, expired: Callable[[str], None]) -> None:
        self._expired = expired
        self._running: dict[str, asyncio.TimerHandle] = {}
        self._left: dict[str, float] | None = None  # while stopped: the remaining seconds of each

    def set(self, timer: str, seconds: float) -> None:
        """Start a timer, or restart it; 0 cancels it."""
        running = self._running.pop(timer, None)
        if running is not None:
            running.cancel()
        if self._left is not None:
            self._left.pop(timer, None)
            if seconds > 0:
                self._left[timer] = seconds
        elif seconds > 0:
            self._running[timer] = asyncio.get_running_loop().call_later(seconds, self._expire, timer)

    def stand_still(self) -> None:
        """Stop all timers until `go_on`."""
        if self._left is None:
            now = asyncio.get_running_loop().time()
            self._left = {timer: max(0.001, handle.when() - now) for timer, handle in self._running.items()}
            self.cancel()

    def go_on(self) -> None:
        """Continue each timer with its remaining time."""
        left, self._left = self._left or {}, None
        for timer, seconds in left.items():
            self.set(timer, seconds)

    def cancel(self) -> None:
        """Cancel all running timers."""
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()

    def _expire(self, timer: str) -> None:
        del self._running[timer]
        self._expired(timer)

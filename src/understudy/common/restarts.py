"""Limit how often a process that was killed is restarted: at most so many times within some seconds; beyond that it cannot run."""

from __future__ import annotations

MOST, SECONDS = 5, 60.0


class Restarts:
    """The restarts of one process. Times are in seconds of one monotonic clock."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._last: list[float] = []

    def take(self, now: float) -> bool:
        """Return whether it may be restarted now; if so, the restart is counted."""
        self._last = [moment for moment in self._last if now - moment < self._seconds]
        if len(self._last) >= self._most:
            return False
        self._last.append(now)
        return True

    @property
    def exceeded(self) -> str:
        """Describe how often it has ended, after a refusal."""
        return f"{self._most + 1} times within {self._seconds:.0f} s"

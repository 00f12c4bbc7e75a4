"""How often something that was killed is started again: not more than so many times within some seconds, or it cannot run."""

from __future__ import annotations

MOST, SECONDS = 5, 60.0


class Restarts:
    """Of one process. Times are in seconds of one monotonic clock."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._last: list[float] = []

    def take(self, now: float) -> bool:
        """Whether it may be started again now; if so, that counts as done."""
        self._last = [moment for moment in self._last if now - moment < self._seconds]
        if len(self._last) >= self._most:
            return False
        self._last.append(now)
        return True

    @property
    def exceeded(self) -> str:
        """In words, after a no: how often it has ended."""
        return f"{self._most + 1} times within {self._seconds:.0f} s"

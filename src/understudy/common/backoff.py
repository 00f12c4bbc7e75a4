"""Decide how long to wait before the next attempt at something that fails: twice as long each time, up to a limit."""

from __future__ import annotations


class Backoff:
    """Growing delays, in seconds."""

    def __init__(self, first: float, most: float) -> None:
        self._first = self._next = first
        self._most = most

    def delay(self) -> float:
        """Return the delay to wait now; the next one is longer."""
        delay, self._next = self._next, min(2 * self._next, self._most)
        return delay

    def reset(self) -> None:
        """Start from the shortest delay, after an attempt that has succeeded."""
        self._next = self._first

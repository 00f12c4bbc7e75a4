"""Decide until when the holder of a lease leads. Rules only: no I/O, no clock; callers pass the time.

A lease is valid for a number of seconds from the moment of the *request*, because the database may count from then on. Times are in seconds
of a monotonic clock that runs while the process is stopped.
"""

from __future__ import annotations


class LeaseTerm:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._good_until = 0.0

    def extend(self, asked: float) -> None:
        """Extend the term after a lease was taken or renewed; `asked`: the time of the request."""
        self._good_until = asked + self._seconds

    def over(self, now: float) -> bool:
        """Return whether another orchestrator may decide now."""
        return now > self._good_until

    def worth_taking(self, asked: float, now: float) -> bool:
        """Return whether enough of the requested lease is left, because the time since the request has used some of it."""
        return now - asked <= self._seconds / 2

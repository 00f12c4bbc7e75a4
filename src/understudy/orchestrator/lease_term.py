"""Until when does an orchestrator lead that holds a lease? Rules only: no I/O, no clock. Whoever asks says what time it is.

A lease is good for so many seconds from the moment in which it was *asked* for: the database may have counted from then on. Times are in
seconds of a monotonic clock that goes on while the process is stopped.
"""

from __future__ import annotations


class LeaseTerm:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._good_until = 0.0

    def extend(self, asked: float) -> None:
        """It was taken or renewed, as asked for then."""
        self._good_until = asked + self._seconds

    def over(self, now: float) -> bool:
        """Whether another orchestrator may decide by now."""
        return now > self._good_until

    def worth_taking(self, asked: float, now: float) -> bool:
        """Whether enough of one that was asked for is left: not if what was done meanwhile has used it up."""
        return now - asked <= self._seconds / 2

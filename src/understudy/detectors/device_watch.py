"""Remember one device between a detector's looks: counters, rates and states, and the evidence of the present look.

A counter counts by its rise: one that does not change gives no evidence, and one that goes down was reset. A state gives evidence at every
look, with the time at which it began, once it has lasted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

from understudy.detectors.base import Evidence, Severity, Subject
from understudy.messages import gpu_evidence


@dataclass(frozen=True)
class Rate:
    """A limit: more than `count` within `seconds` is too much."""

    count: int
    seconds: float

    def exceeded(self, count: int, seconds: float) -> bool:
        """Return whether `count` within `seconds` exceeds the limit, if none of them is known to have come together."""
        return count > self.count * max(1.0, seconds / self.seconds)


class WatchedDevice:
    """A detector's memory of one device. Subclasses query the device."""

    def __init__(self, detector: str, index: int, title: str, wears_off: float) -> None:
        """Prepare the memory. `title`: the device's name in messages. `wears_off`: seconds for which evidence of passing conditions is
        valid.
        """
        self.index = index
        self.title = title
        self._detector = detector
        self._wears_off = wears_off
        self._values: dict[Hashable, int] = {}  # of each counter, at the last look
        self._meters: dict[str, _Meter] = {}  # by kind
        self._since: dict[str, float] = {}  # unix time since which each state has been seen at every look
        self._now = 0.0
        self._found: list[Evidence] = []
        self._states: set[str] = set()  # of this look

    def _begin(self, now: float) -> None:
        self._now, self._found, self._states = now, [], set()

    def _end(self) -> list[Evidence]:
        self._since = {kind: since for kind, since in self._since.items() if kind in self._states}
        return self._found

    @property
    def _passing(self) -> float:
        """Return the unix time until which evidence of passing conditions is valid."""
        return self._now + self._wears_off

    def _rise(self, counter: Hashable, value: int) -> int:
        """Return by how much a counter has risen since the last look. If it went down, it was reset."""
        before = self._values.get(counter, value)
        self._values[counter] = value
        return max(0, value - before)

    def _rate(self, kind: str, what: str, rise: int, rate: Rate) -> bool:
        """Report `rise` if it exceeds `rate`; return whether it did."""
        count, seconds = self._meters.setdefault(kind, _Meter(rate.seconds)).add(self._now, rise)
        if not rise or not rate.exceeded(count, seconds):
            return False
        detail = gpu_evidence.TOO_MANY(count=count, errors=what, seconds=seconds, limit=rate.count, within=rate.seconds, gpu=self.title)
        self._tell(Severity.SUSPECT, kind, detail, self._passing)
        return True

    def _state(self, severity: Severity, kind: str, detail: str, until: float = 0.0, after: float = 0.0) -> None:
        """Report a state, once per look, after it has lasted `after` seconds."""
        since = self._since.setdefault(kind, self._now)
        if kind not in self._states and self._now - since >= after:
            self._tell(severity, kind, detail, until, since)
        self._states.add(kind)

    def _tell(self, severity: Severity, kind: str, detail: str, until: float = 0.0, happened: float | None = None) -> None:
        happened = self._now if happened is None else happened
        self._found.append(Evidence(self._detector, Subject.DEVICE, "", severity, detail, happened, kind, f"gpu{self.index}", until))


class _Meter:
    """Count events over the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._total = 0
        self._samples: deque[tuple[float, int]] = deque()  # time and total; the first is the youngest that is `seconds` old, if one is

    def add(self, now: float, count: int) -> tuple[int, float]:
        """Return the count since the first sample, and the age of that sample in seconds: more than the period if looks were left out."""
        self._total += count
        self._samples.append((now, self._total))
        while len(self._samples) > 1 and now - self._samples[1][0] >= self._seconds:
            self._samples.popleft()
        then, total = self._samples[0]
        return self._total - total, now - then

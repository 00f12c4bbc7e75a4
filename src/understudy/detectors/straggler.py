"""Find ranks that compute more slowly than their replicas, from how much of their time the workers compute and do not wait.

In a job whose ranks train together all of them take the same time for a step, because all wait for the slowest. A slow rank differs in that
it hardly waits. Every worker shows on its page how much own time it has spent in each activity, from about five samples a second
(`worker.process.own_time`). Each rank's part of the time is compared with the median of its replicas' (ranks of the same role: they have
the same state or shards of it, so the same is to be computed), in windows of at least `STEPS` steps, `SECONDS`, and `LOOKS` looks.

A rank is slow in a window if its own time is more than `margin` times that median, and if a step would be shorter by `SHARE` of it, and by
`FLOOR`, without the difference. It is a straggler if it was slow in `WINDOWS` windows in a row, and chance does not explain it: over the
looks of these windows together, the two are more than `margin` apart even if both are `DEVIATIONS` standard deviations off (Wilson's
interval for a binomial proportion). Otherwise the next windows in a row are added, until it is. Evidence is valid until a window in which
the rank is not slow, and is given again with every further proof.

A worker is suspect because of its time in transactions up to the vote, forward and backward, which are equal on replicas. After the
vote and between transactions a rank may have other work (checkpoints, logs, the evaluation of rank 0): the others wait for it, which a
person should know, but another worker in its place would be no faster. That is a note, of another kind.

Everything starts again with every generation, worker of a rank, and role. While a rank recovers, moves or is drilled nothing is judged.

Known limits: without replicas there is nothing to compare with, and if most of a rank's replicas are as slow as it is, it is not named.
Where waits are not known (NCCL whose device is not timed, another platform, an earlier version) there is no verdict. Replicas that
repeatedly get more to compute (longer sequences, tokens of more experts) are considered slow, and so is a rank with other work
in its steps. A rank that is slow for less than three windows is not seen, and one that is slower by little more than the margin is seen
late.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import attrgetter

from understudy.common.page_view import Activity, PageView
from understudy.detectors.base import Detector, Evidence, JobView, Severity, Subject
from understudy.messages import training_evidence
from understudy.messages.base import Message

MARGIN = 1.5
STEPS, SECONDS, LOOKS = 20, 10.0, 40  # of a window, at least
WINDOWS = 3
SHARE = 0.1  # of a step
FLOOR = 0.005  # seconds of a step
DEVIATIONS = 3.0
_TRAINS = frozenset({Activity.RUNNING, Activity.VOTED, Activity.COMMITTING, Activity.IDLE})


@dataclass(frozen=True)
class _Phase:
    activity: Activity
    own: Callable[[PageView], int]  # milliseconds
    kind: str
    severity: Severity
    message: Message


_PHASES = (
    _Phase(Activity.RUNNING, attrgetter("own_running"), "straggler", Severity.SUSPECT, training_evidence.COMPUTES_LONGER),
    _Phase(Activity.COMMITTING, attrgetter("own_committing"), "busy-behind-votes", Severity.NOTE, training_evidence.BUSY_AFTER_VOTES),
    _Phase(Activity.IDLE, attrgetter("own_idle"), "busy-between-steps", Severity.NOTE, training_evidence.BUSY_BETWEEN_STEPS),
)


@dataclass(frozen=True)
class _Reading:
    page: PageView
    clock: float  # the host's monotonic clock

    @property
    def trains(self) -> bool:
        return self.page.activity in _TRAINS and self.page.looks > 0

    def follows(self, first: _Reading) -> bool:
        """Return whether both readings are of one worker that has made progress: pages come from other processes."""
        counts = [
            (reading.clock, reading.page.step, reading.page.looks, *(phase.own(reading.page) for phase in _PHASES))
            for reading in (first, self)
        ]
        return all(before <= after for before, after in zip(*counts, strict=True))


@dataclass(frozen=True)
class _Spent:
    """A rank's work in a window."""

    seconds: float
    steps: int
    looks: int
    parts: Sequence[float]  # parts of the time that were own time, in each of `_PHASES`

    @classmethod
    def between(cls, first: _Reading, last: _Reading) -> _Spent:
        seconds = last.clock - first.clock
        own = [(phase.own(last.page) - phase.own(first.page)) / 1000 for phase in _PHASES]
        parts = [min(1.0, spent / seconds) if seconds else 0.0 for spent in own]
        return cls(seconds, last.page.step - first.page.step, last.page.looks - first.page.looks, parts)

    @property
    def enough(self) -> bool:
        return self.steps >= STEPS and self.seconds >= SECONDS and self.looks >= LOOKS


@dataclass(frozen=True)
class _Compared:
    """A rank and the median of its replicas in one phase: in a window, or in several consecutive ones together."""

    windows: int
    seconds: float
    steps: int
    looks: int  # of the rank with the fewest
    own: float  # seconds
    usual: float  # seconds of the median

    def __add__(self, other: _Compared) -> _Compared:
        return _Compared(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))

    def slow(self, margin: float) -> bool:
        more = self.own - self.usual
        return self.own > margin * self.usual and more >= SHARE * self.seconds and more >= FLOOR * self.steps

    def proven(self, margin: float) -> bool:
        """Return whether chance does not explain the difference."""
        own, usual = self.own / self.seconds, self.usual / self.seconds
        return self.windows >= WINDOWS and _bounds(own, self.looks)[0] > margin * _bounds(usual, self.looks)[1]


class Straggler(Detector):
    """Find stragglers in readings (`observe`), on request (`look`). All times are passed in."""

    name = "straggler"

    def __init__(self, margin: float = MARGIN) -> None:
        self._margin = margin
        self._newest: dict[str, _Reading] = {}
        self._assignment: object = None  # the assignment that must not change for readings to be comparable
        self._begun = 0.0  # unix time of the window's start
        self._first: Mapping[int, _Reading] = {}  # of each rank, at that time; empty if there is no window
        self._streaks: dict[tuple[int, _Phase], _Compared] = {}
        self._found: dict[tuple[int, _Phase], Evidence] = {}

    def observe(self, pages: Mapping[str, PageView], clock: float) -> None:
        """Add the pages of one node's workers, read when its monotonic clock showed `clock`."""
        self._newest.update((worker, _Reading(page, clock)) for worker, page in pages.items())

    def look(self, job: JobView) -> list[Evidence]:
        for worker in self._newest.keys() - {*job.ranks.values(), *job.idle}:
            del self._newest[worker]
        newest = {rank: self._newest[worker] for rank, worker in job.ranks.items() if worker in self._newest}
        known = job.steady and newest.keys() == set(range(len(job.roles))) and all(reading.trains for reading in newest.values())
        assignment = job.generation, tuple(job.roles), dict(job.ranks)
        if not known or not self._first or assignment != self._assignment:
            self._assignment = assignment
            self._begin(newest if known else {}, job.now)
        elif job.now - self._begun >= SECONDS:
            if not all(newest[rank].follows(first) for rank, first in self._first.items()):
                self._begin(newest, job.now)
            spent = {rank: _Spent.between(first, newest[rank]) for rank, first in self._first.items()}
            if all(one.enough for one in spent.values()):
                self._judge(job, spent)
                self._begun, self._first = job.now, newest
        suspected = {rank for rank, phase in (*self._found, *self._streaks) if phase.severity is Severity.SUSPECT}  # or is about to be
        return [one for (rank, phase), one in self._found.items() if phase.severity is Severity.SUSPECT or rank not in suspected]

    def _begin(self, readings: Mapping[int, _Reading], now: float) -> None:
        """Start a new window. Earlier readings do not count any more."""
        self._begun, self._first = now, readings
        self._streaks, self._found = {}, {}

    def _judge(self, job: JobView, spent: Mapping[int, _Spent]) -> None:
        """Judge a window at its end."""
        replicas: dict[int, list[int]] = {}
        for rank, role in enumerate(job.roles):
            replicas.setdefault(role, []).append(rank)
        for ranks in replicas.values():
            looks = min(spent[rank].looks for rank in ranks)
            for number, phase in enumerate(_PHASES if len(ranks) > 1 else ()):
                ordered = sorted(spent[rank].parts[number] for rank in ranks)
                for rank in ranks:
                    one, part = spent[rank], spent[rank].parts[number]
                    usual = _median_of_others(ordered, part)
                    compared = _Compared(1, one.seconds, one.steps, looks, part * one.seconds, usual * one.seconds)
                    self._add(job, rank, phase, compared, len(ranks) - 1)

    def _add(self, job: JobView, rank: int, phase: _Phase, window: _Compared, others: int) -> None:
        key = rank, phase
        if not window.slow(self._margin):
            self._streaks.pop(key, None)
            self._found.pop(key, None)
            return
        streak = self._streaks[key] = self._streaks[key] + window if key in self._streaks else window
        if streak.proven(self._margin):
            del self._streaks[key]
            own, usual = (1000 * seconds / streak.steps for seconds in (streak.own, streak.usual))
            detail = phase.message(rank=rank, own=own, usual=usual, others=others, steps=streak.steps, activity=phase.activity.name)
            self._found[key] = Evidence(self.name, Subject.WORKER, job.ranks[rank], phase.severity, detail, job.now, phase.kind)


def _median_of_others(ordered: Sequence[float], own: float) -> float:
    """Return the median without one value that is `own`."""
    without = bisect_left(ordered, own)
    others = len(ordered) - 1
    middle = [ordered[at + (at >= without)] for at in ((others - 1) // 2, others // 2)]
    return sum(middle) / 2


def _bounds(part: float, looks: int) -> tuple[float, float]:
    """Return the bounds of a probability after an event was seen in this part of so many looks: Wilson, JASA 22 (1927)."""
    z2 = DEVIATIONS**2 / looks
    centre = part + z2 / 2
    reach = math.sqrt(z2 * (part * (1 - part) + z2 / 4))
    return (centre - reach) / (1 + z2), (centre + reach) / (1 + z2)

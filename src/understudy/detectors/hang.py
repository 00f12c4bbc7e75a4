"""Find the worker that hangs, from the pages of all workers, which are read a few times a second.

There are two kinds of evidence:

- Silence. Every worker beats, from its own thread, as long as its process is scheduled. A worker whose beat has
  stopped for longer than its limit is stopped, or stuck in a call that never releases the interpreter's lock. If all are silent, nothing is
  concluded: the whole host is stopped or starved, and no worker would be left to recover with.
- Standstill. Training is collective: one rank that does not go on stops all the others. When no rank has made any
  progress (activity, transaction, collectives) for longer than the limit, and exactly one rank lags behind all the
  others, that one is the culprit: it is in a lower transaction, or has not voted while all others have, or all others have
  issued the same number of collectives and it has issued fewer, and is not known to wait for others. Otherwise the number of waits decides,
  if it is known for each rank (in Gloo and, where torch records when a collective begins, in NCCL; for other workers' runtimes: the vote):
  if exactly one rank waits for no other, it is the culprit.

| where the rank is | limit |
|---|---|
| in a step | learned from the job: `hang_factor` times its longest transaction so far, at least `hang_floor` |
| in one of the first steps of a function, in a section, between transactions, in the set-up, at the script's end | `alone` |
| in a stretch that the script has named (`Job.long`) | the limit of that |
| silent, wherever it is | as in a step; before a worker's first commit `hang_first` |
| some rank is in a Python debugger, or traced by another process (gdb) | none |

A rank that works alone for longer than `hang_floor` is reported (`alone`), with its line in the script. A rank that is lost
while its main thread is in an uninterruptible system call is evidence against its node as well.

The number counts the waits of all threads of a process, but a rank that hangs may still have a collective in progress:
then no rank is named. Whether only its main thread waits cannot be determined reliably (it sleeps on a lock of torch's, and only the queue
thread that works for it on one of Gloo's), and a wait that is overlooked there would cost a healthy rank. In a program whose ranks
issue the same collectives in the same order this makes no difference: the others have issued all that the hung rank has, so
its collectives are complete.

Waits are evidence only in transactions and between them. A script that sets up also waits in stores, and in a recovery ranks wait for
the orchestrator, for a decision or for a connection: neither is counted, so a rank without waits may well be waiting. A recovery
has its own limits, and there the rule applies that the only rank that has not entered it delays it.

Known limits: a standstill in which several ranks are equally far behind names no rank (`stalled` shows that there is one) if the waits
are not known (NCCL without TORCH_NCCL_ENABLE_TIMING=1, another platform, a worker of an earlier version), if two ranks hang, or if the
hung one waits in the background. A rank that waits for a hung one by other means (a file, a store) is named in its place if
all others wait in Gloo, the hung one in the background. Code of one rank in a step for which the others wait, longer than the limit, looks
exactly like a hang: name it with `Job.long`. A transaction before which the scripts of others have ended can never commit (`left_behind`).
A rank that has a new worker counts as progress, which the readings show only later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

from understudy.common.page_view import ALONE, Activity, PageView, Process, line_of
from understudy.core.model import Timeouts
from understudy.detectors.base import Detector, Evidence, JobView, Severity, Subject
from understudy.messages import training_evidence

_WAITS_COUNT = frozenset({Activity.IDLE, Activity.RUNNING, Activity.VOTED, Activity.COMMITTING})
_STAGE = {Activity.SETUP: 0, Activity.IDLE: 0, Activity.RUNNING: 1, Activity.VOTED: 2, Activity.COMMITTING: 3, Activity.FINISHED: 4}
_OUTSIDE = frozenset({Activity.SETUP, Activity.IDLE, Activity.FINISHED})  # activities outside of transactions
_UNDER_A_DEBUGGER = Process.DEBUGGED | Process.TRACED
_STEPLESS = frozenset({Activity.WARM, Activity.RECOVERING})  # a worker there may have committed nothing yet


@dataclass(frozen=True)
class Verdict:
    """The worker that hangs. `happened`: unix time of its last sign of life, or of the job's last progress."""

    worker: str
    detail: str
    happened: float


@dataclass(frozen=True)
class Alone:
    """A rank for which all others wait. `seconds`: for how long; `limit`: after which it is considered hung; `page`: its last."""

    rank: int
    worker: str
    seconds: float
    limit: float
    page: PageView
    waits_for_none: bool  # how this is known: else it lags behind the others


@dataclass
class _Watched:
    page: PageView
    clock: float  # the host's monotonic clock at the last reading
    at: float  # unix time of that reading, by the orchestrator's clock
    moved_at: float  # unix time of the last progress
    waited_at: float  # unix time of the last reading that did not show that it waits for no other

    @property
    def alive_at(self) -> float:
        """Unix time of the last beat."""
        return self.at - (self.clock - self.page.beat_at)


class HangWatch(Detector):
    """Find hangs in readings (`observe`), on request (`judge`). All times are passed in."""

    name = "hang"

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._workers: dict[str, _Watched] = {}
        self._ranks: dict[int, str] = {}  # as of the last judgement
        self._left_behind: dict[tuple[str, int, str], float] = {}  # worker, transaction, who has ended: first reading
        self._changed_at = 0.0  # unix time of the last change in them

    def observe(self, pages: Mapping[str, PageView], clock: float, now: float) -> None:
        """Add the pages of one node's workers, read when its monotonic clock showed `clock`; `now` is unix time."""
        for worker, page in pages.items():
            seen = self._workers.get(worker)
            moved = now - max(0.0, clock - page.since)
            if seen is None:
                self._workers[worker] = _Watched(page, clock, now, moved, now)
                continue
            if page.collectives != seen.page.collectives:
                moved = now
            seen.moved_at = max(seen.moved_at, moved)
            if page.waits:
                seen.waited_at = now
            seen.page, seen.clock, seen.at = page, clock, now

    def changed(self, now: float) -> None:
        """Note that all ranks have had to wait until `now` (unix time) for a reason outside of them."""
        self._changed_at = now

    def forget(self, keep: Set[str]) -> None:
        """Forget all other workers."""
        for worker in self._workers.keys() - keep:
            del self._workers[worker]

    def stalled(self, ranks: Mapping[int, str], now: float) -> float:
        """Return the seconds since any rank made progress; 0 while one of them has not been read, or is in a debugger."""
        watches = [self._workers.get(worker) for worker in ranks.values()]
        known = [watched for watched in watches if watched is not None]
        if len(known) < len(watches) or not known or any(w.page.process & _UNDER_A_DEBUGGER for w in known):
            return 0.0
        return self.still(ranks.values(), now)

    def moves(self, ranks: Mapping[int, str], now: float) -> bool:
        """Return whether any rank has made progress, or got a new worker, within the shortest limit. As a rule the first one has."""
        since = now - self._floor(ranks)
        watched = map(self._workers.get, ranks.values())
        return self._changed_at >= since or any(one.moved_at >= since for one in watched if one is not None)

    def still(self, workers: Iterable[str], now: float) -> float:
        """Return the seconds since any of these workers made progress, or any rank got a new worker; 0 if none has been read."""
        known = list(workers)
        moved = [self._workers[worker].moved_at for worker in known if worker in self._workers]
        return self._as_of(known, now) - max(self._changed_at, *moved) if moved else 0.0

    def _as_of(self, workers: Iterable[str], now: float) -> float:
        """Return the time of the oldest reading. The reader of the pages may itself have been stopped; that time must not count against
        the workers.
        """
        return min([now, *(self._workers[worker].at for worker in workers if worker in self._workers)])

    def judge(self, ranks: Mapping[int, str], idle: Collection[str], now: float) -> Verdict | None:
        """Return the worker that hangs, if there is one. `ranks`: the worker of each rank. `idle`: all other workers."""
        if self._ranks and self._ranks != ranks:
            self._changed_at = now
        self._ranks = dict(ranks)
        return self._silent([*ranks.values(), *idle], now) or self._standstill(ranks, now)

    def look(self, job: JobView) -> list[Evidence]:
        """Return the verdict on a job as evidence: first the evidence against the node."""
        found = self.judge(job.ranks, job.idle, job.now)
        if found is None:
            return []
        evidence = [Evidence(self.name, Subject.WORKER, found.worker, Severity.LOST, found.detail, found.happened)]
        node = job.nodes.get(found.worker, "")
        if node and self._workers[found.worker].page.process & Process.UNINTERRUPTIBLE:
            detail = training_evidence.UNINTERRUPTIBLE(worker=found.worker, where=self._workers[found.worker].page.where or "not known")
            evidence.insert(0, Evidence(self.name, Subject.NODE, node, Severity.SUSPECT, detail, found.happened, "uninterruptible"))
        return evidence

    def left_behind(self, ranks: Mapping[int, str]) -> tuple[int, PageView, str] | None:
        """Return a rank in a transaction that can never commit, because the scripts of others have ended before it; with its page and the
        reason in words. Needs two readings: a single one may have been made while the page was written.
        """
        watched = {rank: self._workers[worker] for rank, worker in ranks.items() if worker in self._workers}
        ended: dict[int, int] = {}
        for rank, one in watched.items():
            if one.page.activity is Activity.FINISHED:
                ended.setdefault(one.page.transaction, rank)
        before, self._left_behind = self._left_behind, {}
        for rank, one in watched.items() if ended else ():
            page = one.page
            if page.activity in (Activity.RUNNING, Activity.VOTED) and page.transaction in ended:
                key = (ranks[rank], page.transaction, ranks[ended[page.transaction]])
                self._left_behind[key] = before.get(key, one.at)
                if one.at > self._left_behind[key]:
                    where = f"transaction {page.transaction}" if page.transaction >= 0 else "the first transaction"
                    return rank, page, training_evidence.LEFT_BEHIND(where=where, others=ended[page.transaction])
        return None

    def never_ends(self, ranks: Mapping[int, str], now: float) -> tuple[int, PageView, float] | None:
        """Return a rank whose script has failed, and whose threads or exit handlers have not ended within `alone`; with its page and the
        seconds since then.
        """
        for rank, worker in ranks.items():
            watched = self._workers.get(worker)
            if watched is not None and watched.page.process & Process.ENDING and now - watched.moved_at > self._timeouts.alone:
                return rank, watched.page, now - watched.moved_at
        return None

    def limit(self, worker: str) -> float:
        """Return the seconds without a sign of life that this worker is granted."""
        return self._limit(worker, self._longest())

    def _longest(self) -> float:
        return max((watched.page.longest for watched in self._workers.values()), default=0.0)

    def _limit(self, worker: str, longest: float) -> float:
        page = self._workers[worker].page
        if page.step == 0 and page.activity not in _STEPLESS:
            return self._timeouts.hang_first
        return self._of_steps(longest)

    def of_steps(self) -> float:
        """Return the seconds that a step may take, as learned from the job."""
        return self._of_steps(self._longest())

    def _of_steps(self, longest: float) -> float:
        return max(self._timeouts.hang_floor, self._timeouts.hang_factor * longest)

    def _silent(self, workers: Collection[str], now: float) -> Verdict | None:
        floor, oldest = self._timeouts.hang_floor, now - self._timeouts.hang_floor / 2
        known = {name: watched for name in workers if (watched := self._workers.get(name)) is not None}
        if not any(watched.clock - watched.page.beat_at > floor for watched in known.values()):
            return None  # no limit is below that
        silences = {
            name: watched.clock - watched.page.beat_at for name, watched in known.items() if watched.at > oldest and watched.page.beats > 0
        }
        late = [name for name, silence in silences.items() if silence > floor and not known[name].page.process & Process.TRACED]
        if not late or min(silences.values()) > floor / 2:
            return None
        longest = self._longest()
        name = max(late, key=lambda name: silences[name] / self._limit(name, longest))
        silence, limit = silences[name], self._limit(name, longest)
        if silence <= limit:
            return None
        return Verdict(name, training_evidence.SILENT(silence=silence, limit=limit), self._workers[name].at - silence)

    def _standstill(self, ranks: Mapping[int, str], now: float) -> Verdict | None:
        alone = self.alone(ranks, now)
        if alone is None or alone.seconds <= alone.limit:
            return None
        message = training_evidence.WAITS_FOR_NONE if alone.waits_for_none else training_evidence.BEHIND
        page = alone.page
        detail = message(
            stalled=alone.seconds,
            limit=alone.limit,
            rank=alone.rank,
            activity=page.activity.name.lower(),
            transaction=page.transaction,
            collectives=page.collectives,
            where=line_of(page),
        )
        return Verdict(alone.worker, detail, self._as_of(ranks.values(), now) - alone.seconds)

    def alone(self, ranks: Mapping[int, str], now: float) -> Alone | None:
        """Return the rank for which all others have waited for longer than `hang_floor`, or than the limit of its named stretch."""
        if len(ranks) < 2 or self.moves(ranks, now):
            return None
        now = self._as_of(ranks.values(), now)
        stalled = self.stalled(ranks, now)
        if stalled <= self._floor(ranks):
            return None
        watched = {rank: self._workers[worker] for rank, worker in ranks.items()}
        rank = self._behind(watched)
        free = rank is None
        if rank is None:
            rank = self._unhindered(watched, now)
        if rank is None:
            return None
        return Alone(rank, ranks[rank], stalled, self.granted(ranks[rank]), watched[rank].page, free)

    def _floor(self, ranks: Mapping[int, str]) -> float:
        pages = [self._workers[worker].page for worker in ranks.values() if worker in self._workers]
        return min([self._timeouts.hang_floor, *(page.granted for page in pages if page.granted > 0)])

    def granted(self, worker: str) -> float:
        """Return the seconds for which the others may wait for this worker."""
        page = self._workers[worker].page
        if page.granted > 0:
            return page.granted
        if page.granted == ALONE or page.activity in _OUTSIDE or (page.step == 0 and page.activity not in _STEPLESS):
            return max(self._timeouts.alone, self._timeouts.hang_floor)
        return self.limit(worker)

    def _behind(self, watched: Mapping[int, _Watched]) -> int | None:
        recovering = [rank for rank, w in watched.items() if w.page.activity is Activity.RECOVERING]
        if recovering:
            others = watched.keys() - set(recovering)
            return others.pop() if len(others) == 1 else None
        stages = {rank: -1 if w.page.process & Process.ENDING else _STAGE.get(w.page.activity, 0) for rank, w in watched.items()}
        places = {rank: (w.page.transaction, stages[rank]) for rank, w in watched.items()}
        lowest = min(places.values())
        last = [rank for rank, place in places.items() if place == lowest]
        if len(last) == 1:
            return last[0]
        if len(last) < len(places):
            return None
        issued = {rank: w.page.collectives for rank, w in watched.items()}
        fewest = min(issued, key=lambda rank: issued[rank])
        rest = {count for rank, count in issued.items() if rank != fewest}
        alone = len(rest) == 1 and issued[fewest] < min(rest)
        return fewest if alone and watched[fewest].page.waits <= 0 else None

    def _unhindered(self, watched: Mapping[int, _Watched], now: float) -> int | None:
        recent = now - self._timeouts.hang_floor / 2
        pages = {rank: w.page for rank, w in watched.items()}
        if any(page.activity not in _WAITS_COUNT or page.waits < 0 for page in pages.values()):
            return None
        if min(w.alive_at for w in watched.values()) < recent:
            return None  # its report of its waits is old
        free = [rank for rank, page in pages.items() if page.waits == 0]
        return free[0] if len(free) == 1 and watched[free[0]].waited_at < recent else None

"""Execute a schedule: wait for the time of each fault, inject it, and compare its outcome with the expected one.

Before the next fault the job has to recover completely, unless the one before has `overlap`. Every fault that can be undone is undone when
its time is over, and in any case at the end.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from understudy.chaos.armed import ANY, HOLD, Armed, Folder
from understudy.chaos.base import SECONDS, Fault, Hits, Outcome, Undo, Victim
from understudy.chaos.job import NotHere, View, WatchedJob
from understudy.chaos.registry import Registry
from understudy.chaos.schedule import Injection
from understudy.messages import faults
from understudy.messages.base import code_of

LIMIT = 300.0  # seconds after the end of a fault within which its outcome must be there
PROGRESS = 2  # steps that every rank commits after a fault without an incident, before it counts as undisturbed
LEAD = 5  # steps before its own at which a fault inside a worker is armed
FAST, SLOW = 0.005, 0.05  # seconds between two reads of the workers' pages, and of everything else
MISSED = "not injected"


@dataclass
class Record:
    """A fault and its outcome."""

    injection: Injection
    worker: str = ""  # the target
    pid: int | None = None  # None: the target is not a process
    happened: float = 0.0  # unix time
    step: int = -1  # committed at that time
    point: str = ""  # the point that was reached, for a fault inside
    outcome: str = ""  # an `Outcome`, or MISSED; empty: none within the limit
    incidents: list[int] = field(default_factory=list)  # their numbers
    seconds: float | None = None  # duration of the incident
    why: str = ""  # why it is not as expected; "" if it is

    @property
    def met(self) -> bool:
        return self.outcome == self.injection.expected and not self.why


@dataclass
class Result:
    records: list[Record]
    unexplained: list[int]  # incidents that were not caused by a fault
    message: str  # how the job ended, if it has

    @property
    def met(self) -> bool:
        return all(record.met for record in self.records) and not self.unexplained


class Refused(Exception):
    """The fault cannot be injected here and now; the text gives the reason."""


@dataclass
class _Open:
    """A fault in progress."""

    record: Record
    fault: Fault
    armed: str  # its name in the folder; empty: injected from outside
    folder: Folder | None
    known: set[int]  # earlier incidents
    limit: float  # monotonic seconds
    holder: str  # the worker that must be lost for "replaced"
    over_at: float = 0.0  # monotonic seconds when its own time is over; 0: it has not happened yet
    waiting: bool = False  # no fault is armed, but a rank waits at the point until it is injected from outside
    steps: dict[int, int] = field(default_factory=dict)  # committed when it was over


Tell = Callable[[Record], None]


class Runner:
    """Execute a schedule. `tell` is called with each record when its fault happens, and when its outcome is known."""

    def __init__(self, job: WatchedJob, schedule: Sequence[Injection], registry: Registry, tell: Tell, limit: float = LIMIT) -> None:
        self._job = job
        self._schedule = schedule
        self._registry = registry
        self._tell = tell
        self._limit = limit
        self.enough = False  # set it to inject no more faults
        self._tag = uuid.uuid4().hex[:8]  # names of armed faults are used once
        self._open: list[_Open] = []
        self._together: list[_Open] = []  # this fault, and those before it since the job has last recovered
        self._undo: list[tuple[float, Undo]] = []
        self._stack = ExitStack()
        self.records: list[Record] = []

    def run(self) -> Result:
        """Run until all faults have happened and have an outcome, or the job has ended. Raises `Away` if there is no job."""
        known = {one["number"] for one in self._job.look().incidents}
        with self._stack:
            self._go()
        view = self._job.look()
        explained = {number for record in self.records for number in record.incidents}
        found = [one["number"] for one in _unplanned(view) if one["number"] not in known | explained]
        return Result(self.records, found, view.status["message"])

    def _go(self) -> None:
        began = time.monotonic()
        waiting = [deque(one for one in self._schedule if (one.at_step is None) == by_time) for by_time in (False, True)]
        while any(waiting) or self._open:
            view = self._job.look()
            steps = self._job.steps(view)
            self._undo_due()
            self._settle(view, steps)
            elapsed = time.monotonic() - began
            if not self._open and (view.ended or self.enough):
                for one in (one for queue in waiting for one in queue if view.ended):
                    self._miss(one, faults.JOB_ENDED())
                return
            due = self._due(waiting, max(steps.values(), default=0), elapsed)
            if due is not None and not view.ended and not self.enough and self._may_go(due[0], view):
                self._inject(due.popleft(), view, max(steps.values(), default=0))
            else:
                self._job.wait(FAST if waiting[0] and not self._open else SLOW)

    def _due(self, waiting: Sequence[deque[Injection]], step: int, elapsed: float) -> deque[Injection] | None:
        """Return the queue, by step or by time, whose first fault is due."""
        for queue in filter(None, waiting):
            head = queue[0]
            if head.at_step is None:
                come = elapsed >= (head.after or 0.0)
            else:
                come = step >= head.at_step - (LEAD if head.point is not None else 0)
            if come:
                return queue
        return None

    def _may_go(self, injection: Injection, view: View) -> bool:
        if any(not one.record.injection.overlap for one in self._open):
            return False
        if not self._open and not view.whole:
            return False
        wanted = sum(one.record.injection.expected is Outcome.REPLACED for one in self._open)
        wanted += (injection.expected is Outcome.REPLACED) + injection.overlap  # the next one may need a spare, too
        return len(view.spares) >= wanted or not view.warming

    # -- injection -------------------------------------------------------------------------------------------------------

    def _inject(self, injection: Injection, view: View, step: int) -> None:
        fault = self._registry.find(injection.fault)
        record = Record(injection)
        self.records.append(record)
        try:
            if why := fault.why_not():
                raise Refused(why)
            if injection.expected is Outcome.REPLACED and not view.spares:
                raise Refused(faults.NO_SPARE_TO_REPLACE())
            one = self._begin(record, fault, view, step)
        except (Refused, NotHere, OSError) as error:
            self._finish(record, MISSED, _why(error))
            return
        self._together = [*self._together, one] if self._open else [one]
        self._open.append(one)
        self._tell(record)

    def _begin(self, record: Record, fault: Fault, view: View, step: int) -> _Open:
        injection = record.injection
        known = {one["number"] for one in view.incidents}
        limit = time.monotonic() + self._limit + float(injection.values.get(SECONDS, 0.0))
        if fault.outside is None or injection.point is not None:
            return self._arm(record, fault, view, known, limit)
        one = _Open(record, fault, "", None, known, limit, "")
        self._do(one, view, step)
        return one

    def _do(self, one: _Open, view: View, step: int) -> None:
        """Inject a fault from outside, now."""
        record, fault, values = one.record, one.fault, one.record.injection.values
        victim = self._victim(record, fault, view)
        assert fault.outside is not None
        undo = fault.outside(victim, values)
        record.pid, record.happened, record.step = victim.pid, time.time(), step
        one.holder, one.over_at = record.worker, time.monotonic() + float(values.get(SECONDS, 0.0))
        if undo is not None:
            self._later(one.over_at if SECONDS in values else None, undo)

    def _victim(self, record: Record, fault: Fault, view: View) -> Victim:
        injection = record.injection
        if fault.hits is Hits.ORCHESTRATOR:
            return self._job.orchestrator()
        if fault.hits is Hits.NODE:
            assert injection.node is not None
            return self._job.node(injection.node, view)
        if injection.spare and not view.spares:
            raise Refused(faults.NO_WARM_SPARE())
        local = self._job.local(view.spares[0] if injection.spare else _holder(view, _rank(injection)))
        record.worker = local.worker
        return Victim(local.pid)

    def _arm(self, record: Record, fault: Fault, view: View, known: set[int], limit: float) -> _Open:
        injection = record.injection
        waiting = injection.at_rank is not None
        rank = injection.at_rank if injection.at_rank is not None else injection.rank
        assert rank is not None
        local = self._job.local(_holder(view, rank))
        if not local.consents:
            message = faults.NO_CONSENT_TO_WAIT if waiting else faults.NO_CONSENT_INSIDE
            raise Refused(message(fault=fault.name))
        folder, name = Folder(local.run_dir), f"{self._tag}-{injection.number}"
        what = HOLD if waiting else fault.name
        folder.arm(Armed(name, what, rank, injection.point or ANY, injection.at_step, {} if waiting else injection.values))
        self._stack.callback(folder.disarm, name)
        return _Open(record, fault, name, folder, known, limit, "", waiting=waiting)

    def _later(self, at: float | None, undo: Undo) -> None:
        """Undo a fault at a given time (monotonic seconds), or at the end."""
        done = itertools.count()

        def once() -> None:
            if next(done) == 0:
                undo()

        self._stack.callback(once)
        if at is not None:
            self._undo.append((at, once))

    def _undo_due(self) -> None:
        now = time.monotonic()
        for at, undo in self._undo:
            if at <= now:
                undo()
        self._undo = [(at, undo) for at, undo in self._undo if at > now]

    # -- outcomes --------------------------------------------------------------------------------------------------------

    def _settle(self, view: View, steps: dict[int, int]) -> None:
        for one in list(self._open):
            if one.armed and not one.over_at:
                self._notice(one, view)
            if one.record.outcome == MISSED:
                self._open.remove(one)
            elif (found := self._outcome(one, view, steps)) is not None:
                self._open.remove(one)
                self._finish(one.record, *found)

    def _notice(self, one: _Open, view: View) -> None:
        """Check whether a fault has happened inside its worker, or a rank waits at its point."""
        assert one.folder is not None
        where = one.folder.fired(one.armed)
        if where is None:
            return
        record = one.record
        record.point = where["point"]
        if one.waiting:
            try:
                self._do(one, view, where["step"])
            except (Refused, NotHere, OSError) as error:
                self._finish(record, MISSED, _why(error))
                return
            finally:
                one.folder.disarm(one.armed)
            self._tell(record)
            return
        record.worker, record.pid = where["worker"], where["pid"]
        record.happened, record.step = where["time"], where["step"]
        one.holder = record.worker
        one.over_at = time.monotonic() + float(record.injection.values.get(SECONDS, 0.0))
        self._tell(record)

    def _outcome(self, one: _Open, view: View, steps: dict[int, int]) -> tuple[str, str] | None:
        """Return the outcome and its problem; None: not known yet."""
        now, expected = time.monotonic(), one.record.injection.expected
        if view.ended:
            happened = one.over_at > 0
            return (Outcome.ENDS, "") if happened else (MISSED, faults.JOB_ENDED())
        if now > one.limit:
            if not one.over_at:
                return MISSED, faults.POINT_NOT_REACHED(seconds=self._limit)
            return "", faults.NOT_WHOLE_AGAIN(seconds=self._limit, state=view.status["state"])
        if not one.over_at:
            return None
        fresh = [incident for incident in _unplanned(view) if incident["number"] not in one.known and self._belongs(one, incident)]
        if any(incident["seconds"] is None for incident in fresh):
            return None
        if fresh:
            return self._judged(one, fresh) if view.whole or one.record.injection.overlap else None
        if expected is not Outcome.UNDISTURBED or now < one.over_at or not (view.whole or one.record.injection.overlap):
            return None
        if not one.steps:
            one.steps = steps
        if one.record.injection.spare and any(spare["worker"] == one.holder for spare in view.status["spares"]) and not _lasting(one):
            return None  # it is not known yet that it is gone
        ahead = all(steps.get(rank, 0) >= step + PROGRESS for rank, step in one.steps.items())
        return (Outcome.UNDISTURBED, "") if ahead else None

    def _belongs(self, one: _Open, incident: dict[str, Any]) -> bool:
        others = [other for other in self._together if other is not one]
        if not others:
            return True
        lost = {part["old_worker"] for part in incident["ranks"]}
        return one.holder in lost or not lost & {other.holder for other in others if other.holder}

    def _judged(self, one: _Open, incidents: Sequence[dict[str, Any]]) -> tuple[str, str]:
        record = one.record
        record.incidents = [incident["number"] for incident in incidents]
        record.seconds = max(incident["seconds"] for incident in incidents)
        every = [part for incident in incidents for part in incident["ranks"]]
        parts = [part for part in every if part["new_worker"] != part["old_worker"]]  # else a migration was cancelled
        outcome = Outcome.REPLACED if parts else Outcome.REJOINED
        problems = list[str]()
        if one.fault.hits is Hits.WORKER and parts and one.holder not in {part["old_worker"] for part in parts}:
            problems.append(faults.ANOTHER_LOST(wanted=one.holder, lost=", ".join(part["old_worker"] for part in parts)))
        if outcome is Outcome.REPLACED and any(not incident["digests_verified"] for incident in incidents):
            problems.append(faults.NO_DIGEST())
        if any(incident["steps_lost"] for incident in incidents):
            problems.append(faults.STEPS_LOST())
        if len(incidents) > 1 and not record.injection.overlap:
            problems.append(faults.SEVERAL_INCIDENTS(count=len(incidents)))
        return outcome, "; ".join(problems)

    def _finish(self, record: Record, outcome: str, why: str) -> None:
        record.outcome, record.why = outcome, why
        if outcome in set(Outcome) and outcome != record.injection.expected and not why:
            record.why = faults.OTHERWISE_EXPECTED(expected=record.injection.expected)
        self._tell(record)

    def _miss(self, injection: Injection, why: str) -> None:
        record = Record(injection)
        self.records.append(record)
        self._finish(record, MISSED, why)


def _why(error: Exception) -> str:
    """Return why a fault is not injected."""
    return str(error) if code_of(error) else faults.SYSTEM_REFUSED(reason=str(error))


def _unplanned(view: View) -> list[dict[str, Any]]:
    """Return the incidents that faults can have caused: not a requested migration, unless a fault turned it into a recovery."""
    return [incident for incident in view.incidents if not incident["planned"]]


def _lasting(one: _Open) -> bool:
    """Return whether the target outlives the fault."""
    return SECONDS in one.record.injection.values


def _rank(injection: Injection) -> int:
    assert injection.rank is not None
    return injection.rank


def _holder(view: View, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = next(holder for holder in view.status["ranks"] if holder["rank"] == rank)
    return found

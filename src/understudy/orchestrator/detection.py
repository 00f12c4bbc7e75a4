"""From evidence to events, and the detectors of other packages: each on a thread of its own: one that hangs holds up itself only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice

from understudy import extensions
from understudy.common.bounds import FIRST_TIME, LAST_TIME
from understudy.core.events import Event, NodeTainted, WorkerLost
from understudy.core.model import LossCause
from understudy.core.state import JobState
from understudy.core.transitions import WorkerState
from understudy.detectors.base import GROUP, Detector, Evidence, JobView, Severity, Subject

MOST = 1000  # pieces of evidence that a detector may find in one look


def event_of(evidence: Evidence, state: JobState) -> Event | None:
    """What the machine is told, None if it knows already, or if nothing but a person should."""
    detail = f"{evidence.detail} ({evidence.detector})" if evidence.detector != "hang" else evidence.detail
    if evidence.subject is Subject.WORKER and evidence.severity is Severity.LOST:
        worker = state.workers.get(evidence.name)
        there = worker is not None and worker.state not in (WorkerState.LOST, WorkerState.RELEASED)
        return WorkerLost(evidence.name, LossCause.HUNG, detail, evidence.happened) if there else None
    if evidence.subject is Subject.NODE and evidence.severity is Severity.SUSPECT:
        node = state.nodes.get(evidence.name)
        return NodeTainted(evidence.name, detail) if node is not None and not node.lost and not node.taint else None
    return None


class OtherDetectors:
    """Those that are installed beside Understudy. What they find is taken with the next look at the job."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell`: a line for the user. Starts nothing yet. Raises `ValueError` for what another package has got wrong."""
        self._tell = tell
        self._kinds = extensions.classes(GROUP, Detector)  # type: ignore[type-abstract]
        self._threads: list[_OnItsThread] = []
        self._noted: set[tuple[str, str]] = set()

    def look(self, job: JobView) -> list[Evidence]:
        """Shows them the job, and gives what they have found since the last look."""
        if not self._threads:
            self._threads = [_OnItsThread(kind) for kind in self._kinds]
        found: list[Evidence] = []
        for thread in self._threads:
            found += thread.show(job)
            if thread.failed:
                self._tell(thread.failed)
                thread.failed = ""
        for evidence in found:
            self._note(evidence)
        return found

    def close(self) -> None:
        """They look no more. One that hangs goes with the process."""
        for thread in self._threads:
            thread.close()

    def _note(self, evidence: Evidence) -> None:
        key = evidence.detector, evidence.name
        if evidence.severity is Severity.NOTE and key not in self._noted:
            self._noted.add(key)
            self._tell(f"{evidence.subject} {evidence.name}: {evidence.detail} ({evidence.detector})")


class _OnItsThread:
    """A detector looks again when what it has found is taken, and so finds things no faster than somebody hears of them."""

    def __init__(self, kind: type[Detector]) -> None:
        self.failed = ""  # why it is left out, for the user
        self._kind = kind
        self._changed = threading.Condition()
        self._view: JobView | None = None  # to be looked at
        self._found: list[Evidence] = []
        self._closed = False
        threading.Thread(target=self._run, name=f"understudy-detector-{kind.__name__}", daemon=True).start()

    def show(self, job: JobView) -> list[Evidence]:
        """What it has found, and what it looks at next."""
        with self._changed:
            found, self._found, self._view = self._found, [], job
            self._changed.notify()
        return found

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            detector = self._kind()
            while (view := self._next()) is not None:
                found = list(islice(detector.look(view), MOST + 1))
                if len(found) > MOST:
                    raise ValueError(f"it finds more than {MOST} things in one look")
                for evidence in found:
                    if not (isinstance(evidence, Evidence) and FIRST_TIME < evidence.happened < LAST_TIME):
                        raise ValueError(f"{evidence!r} is no evidence of something that has happened")
                with self._changed:
                    self._found = found
                    self._changed.wait_for(lambda: self._closed, detector.every)
        except Exception as error:  # whatever a foreign detector raises speaks against itself only
            name = f"{self._kind.__module__}.{self._kind.__qualname__}"
            self.failed = f"the detector {name} is left out from now on: {type(error).__name__}: {error}"

    def _next(self) -> JobView | None:
        """Waits until what was found is taken, and there is something newer to look at; None: it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._view is not None and not self._found))
            view, self._view = self._view, None
            return None if self._closed else view

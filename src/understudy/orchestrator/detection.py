"""From evidence to events, and the detectors of other packages: each on a thread of its own: one that hangs holds up itself only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from understudy import extensions
from understudy.common.bounds import FIRST_TIME, LAST_TIME
from understudy.core.events import Event, NodeTainted, WorkerLost
from understudy.core.nouns import LossCause
from understudy.core.state import JobState, WorkerState
from understudy.detectors.base import GROUP, Detector, Evidence, JobView, Severity, Subject


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
        self._view: JobView | None = None
        self._found: SimpleQueue[Evidence | str] = SimpleQueue()
        self._noted: set[tuple[str, str]] = set()

    def look(self, job: JobView) -> list[Evidence]:
        """Shows them the job, and gives what they have found since the last look."""
        first, self._view = self._view is None, job
        for kind in self._kinds if first else ():
            threading.Thread(target=self._run, args=(kind,), name=f"understudy-detector-{kind.__name__}", daemon=True).start()
        found: list[Evidence] = []
        while True:
            try:
                one = self._found.get_nowait()
            except Empty:
                return found
            if isinstance(one, str):
                self._tell(one)
            else:
                self._note(one)
                found.append(one)

    def _note(self, evidence: Evidence) -> None:
        key = evidence.detector, evidence.name
        if evidence.severity is Severity.NOTE and key not in self._noted:
            self._noted.add(key)
            self._tell(f"{evidence.subject} {evidence.name}: {evidence.detail} ({evidence.detector})")

    def _run(self, kind: type[Detector]) -> None:
        pause = threading.Event()  # never set: this thread ends with the process
        try:
            detector = kind()
            while True:
                assert self._view is not None
                for evidence in detector.look(self._view):
                    if not (isinstance(evidence, Evidence) and FIRST_TIME < evidence.happened < LAST_TIME):
                        raise ValueError(f"{evidence!r} is no evidence of something that has happened")
                    self._found.put(evidence)
                pause.wait(detector.every)
        except Exception as error:  # whatever a foreign detector raises speaks against itself only
            self._found.put(f"the detector {kind.__module__}.{kind.__qualname__} is left out from now on: {type(error).__name__}: {error}")

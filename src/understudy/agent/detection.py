"""Detectors that look at this node: each on a thread of its own, so that one that hangs or takes long holds up itself only.

What they give goes to the orchestrator, which decides what follows. The same thing seen again is told again only after a while: it is known
that it lasts, and a detector that looks often costs the connection little.

A detector that raises, takes longer than its limit or floods is left out from then on and told about: that is evidence about itself only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice

from understudy.common.bounds import FIRST_TIME, LAST_TIME
from understudy.detectors.base import LEFT_OUT, Evidence, NodeDetector, Severity, Subject
from understudy.links.messages import Seen

AGAIN = 10.0  # seconds between two times that the same is told
MOST = 100  # pieces of evidence in one look
LOOK = 1.0  # seconds between two looks at the detectors themselves
_ABOUT = (Subject.NODE, Subject.DEVICE, Subject.LINK)


class NodeDetectors:
    def __init__(self, kinds: Sequence[Callable[[], NodeDetector]], send: Callable[[Seen], None]) -> None:
        """`send` is called on any thread. Starts one thread for each, and one that watches their limits."""
        self._send = send
        self._closed = threading.Event()
        self._running = [_Running(make) for make in kinds]
        for one in self._running:
            threading.Thread(target=self._run, args=(one,), name=f"understudy-detector-{one.title}", daemon=True).start()
        if self._running:
            threading.Thread(target=self._watch, name="understudy-detectors", daemon=True).start()

    def close(self) -> None:
        """They look no more. One that hangs goes with the process."""
        self._closed.set()

    def _run(self, one: _Running) -> None:
        try:
            detector = one.make()
            one.limit = detector.limit
            while not self._closed.is_set():
                one.since = time.monotonic()
                found = list(islice(detector.look(), MOST + 1))
                one.since = None
                if one.out or self._closed.is_set():
                    return
                if len(found) > MOST:
                    raise ValueError(f"it finds more than {MOST} things in one look")
                for evidence in found:
                    self._hear(one, evidence)
                self._closed.wait(detector.every)
        except Exception as error:  # whatever it raises speaks against itself only
            self._leave_out(one, f"{type(error).__name__}: {error}")

    def _hear(self, one: _Running, evidence: Evidence) -> None:
        if not (isinstance(evidence, Evidence) and FIRST_TIME < evidence.happened < LAST_TIME and 0 <= evidence.until < LAST_TIME):
            raise ValueError(f"{evidence!r} is no evidence of something that has happened")
        if evidence.subject not in _ABOUT or evidence.severity is Severity.LOST:
            raise ValueError(f"{evidence!r}: a detector of a node speaks of that node and its parts, as a note or a suspicion")
        key, now = (evidence.subject, evidence.part, evidence.kind, evidence.severity), time.monotonic()
        if now - one.told.get(key, -AGAIN) < AGAIN:
            return
        if len(one.told) >= MOST:
            one.told.clear()
        one.told[key] = now
        about = str(evidence.subject)
        assert about in ("node", "device", "link") and evidence.severity in ("note", "suspect")
        self._send(
            Seen(
                evidence.detector,
                about,  # type: ignore[arg-type]
                str(evidence.severity),  # type: ignore[arg-type]
                evidence.kind,
                evidence.part,
                evidence.detail,
                evidence.happened,
                evidence.until,
            )
        )

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            for one in self._running:
                since = one.since
                if since is not None and not one.out and time.monotonic() - since > one.limit:
                    self._leave_out(one, f"a look takes longer than {one.limit:g} s")

    def _leave_out(self, one: _Running, why: str) -> None:
        if not one.out:
            one.out = True
            text = f"the detector {one.title} is left out from now on: {why}"
            self._send(Seen(one.title, "node", "note", LEFT_OUT, "", text, time.time(), 0.0))


class _Running:
    def __init__(self, make: Callable[[], NodeDetector]) -> None:
        self.make = make
        self.title = str(getattr(make, "name", make))
        self.limit = NodeDetector.limit
        self.since: float | None = None  # its look goes on since then, by the monotonic clock
        self.out = False  # it is left out
        self.told: dict[tuple[Subject, str, str, Severity], float] = {}  # when, by the monotonic clock

"""Detectors on this node: each on its own thread, so that one that hangs or is slow delays only itself.

Their evidence goes to the orchestrator, which decides what follows. A detector may report it only once, so it is kept here (`_Memory`):

- New evidence, or evidence that ends earlier than reported, is sent at once. Evidence that is only reported again, or lasts longer, is sent
  with the next repeat: a detector that runs often costs the connection little.
- A valid suspicion is repeated every `AGAIN` seconds, as long as it is valid, so that a job that was placed on this node later gets it too.
  The orchestrator acts once, and ignores evidence from before the time at which an operator marked the node as trusted.
- After each connect, perhaps to another orchestrator, all of it is sent (`known`): suspicions that are valid or have ended, and notes of
  the last `KEPT` seconds. So no evidence has to wait for a connection.

Evidence with an `until` in the past has ended, and replaces the valid one. Each detector may keep `MOST` pieces; the oldest are dropped,
first those that are not valid.

A detector that raises, exceeds its time limit or floods is disabled, and this is reported: as evidence about the detector, and, if its
check waits for a device, about that device, until the check ends. Its earlier evidence stays valid.

Known limits: evidence is lost with this process. Its successor detects again what is still detectable.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from understudy.common.bounds import FIRST_TIME, LAST_TIME
from understudy.detectors.base import LEFT_OUT, Evidence, NodeDetector, Severity, Subject
from understudy.detectors.choice import Choice
from understudy.links.messages import Seen
from understudy.messages import agents, service_jobs

AGAIN = 10.0  # seconds between two repeats
KEPT = 3600.0  # seconds
MOST = 100  # pieces of evidence from one check, and of one detector that are kept
NO_ANSWER = "no-answer"  # kind of evidence against a device in which a check hangs
LOOK = 1.0  # seconds between two checks of the detectors themselves
CLOSING = 15.0  # seconds for them to end the programs that they have started
_ABOUT = (Subject.NODE, Subject.DEVICE, Subject.LINK)


def looking(node: str, names: Sequence[str]) -> str:
    """Return a line about the detectors that are running; `names`: at least one."""
    *others, last = names
    return agents.DETECTORS_LOOK(node=node, detectors=f"{', '.join(others)} and {last} look" if others else f"{last} looks")


class NodeDetectors:
    def __init__(
        self,
        choices: Sequence[Choice],
        send: Callable[[Seen], None],
        begun: Callable[[list[str]], None] = lambda names: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Start one thread for each detector, and one that watches their limits.

        `send` and `begun` are called on any thread; `begun` once, with the names of the detectors that run, when this is known of all.
        `clock` returns unix time.
        """
        self._send = send
        self._begun = begun
        self._clock = clock
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._running = [_Running(choice) for choice in choices if not choice.off]
        self._unknown = len(self._running)  # number of detectors that may or may not run; not known yet
        for one in self._running:
            threading.Thread(target=self._run, args=(one,), name=f"understudy-detector-{one.title}", daemon=True).start()
        if self._running:
            threading.Thread(target=self._watch, name="understudy-detectors", daemon=True).start()

    def close(self) -> None:
        """Stop the detectors, and wait until the programs that they have started have ended. A detector that hangs ends with the
        process.
        """
        self._closed.set()
        made = [one.detector for one in self._running if one.detector is not None]
        closing = [threading.Thread(target=_close, args=(detector,), name="understudy-detector-close", daemon=True) for detector in made]
        for thread in closing:
            thread.start()
        ends = time.monotonic() + CLOSING
        for thread in closing:
            thread.join(max(0.0, ends - time.monotonic()))

    def known(self) -> list[Seen]:
        """Return everything for an orchestrator that may know nothing of this node."""
        with self._lock:
            return [seen for one in self._running for seen in one.memory.known(self._clock())]

    def _run(self, one: _Running) -> None:
        try:
            one.begin(time.monotonic())
            detector = one.make()
            if detector is None:
                self._returned(one, [])
                return
            while not self._closed.is_set():
                one.begin(time.monotonic())
                found = list(islice(detector.look(), MOST + 1))
                out = self._returned(one, found)
                if out or self._closed.is_set():
                    return
                if len(found) > MOST:
                    raise ValueError(service_jobs.FLOOD(most=MOST))
                for evidence in found:
                    self._hear(one, evidence)
                self._closed.wait(detector.every)
        except Exception as error:  # any exception disables only this detector
            self._returned(one, [])
            self._leave_out(one, f"{type(error).__name__}: {error}")

    def _hear(self, one: _Running, evidence: Evidence) -> None:
        if not (isinstance(evidence, Evidence) and FIRST_TIME < evidence.happened < LAST_TIME and 0 <= evidence.until < LAST_TIME):
            raise ValueError(service_jobs.NOT_EVIDENCE(evidence=repr(evidence)))
        if evidence.subject not in _ABOUT or evidence.severity is Severity.LOST:
            raise ValueError(agents.NOT_OF_NODE(evidence=repr(evidence)))
        about = str(evidence.subject)
        assert about in ("node", "device", "link") and evidence.severity in ("note", "suspect")
        self._remember(
            one,
            Seen(
                evidence.detector,
                about,  # type: ignore[arg-type]
                str(evidence.severity),  # type: ignore[arg-type]
                evidence.kind,
                evidence.part,
                evidence.detail,
                evidence.happened,
                evidence.until,
            ),
        )

    def _remember(self, one: _Running, seen: Seen) -> None:
        with self._lock:
            if one.memory.take(seen, self._clock()):
                self._send(seen)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            for one in self._running:
                with self._lock:
                    if not one.out and one.is_late(time.monotonic()):
                        self._suspect(one)
                        self._leave_out(one, agents.LOOK_TOO_LONG(seconds=one.limit))
                    for seen in one.memory.due(self._clock()):
                        self._send(seen)

    def _suspect(self, one: _Running) -> None:
        """Report a check that takes too long. If it waits for a device, this is evidence against the device."""
        if device := one.stuck_in(time.monotonic()):
            now, detail = self._clock(), agents.NO_ANSWER(device=device, detector=one.title, seconds=one.limit / 2)
            one.silent = Seen(one.title, "device", "suspect", NO_ANSWER, device, detail, now, 0.0)
            self._remember(one, one.silent)

    def _returned(self, one: _Running, found: Sequence[Evidence]) -> bool:
        """Finish a check, and return whether it took too long.

        Then the device has answered, perhaps with evidence against itself, which is the last that this detector reports.
        """
        with self._lock:
            one.since = None
            self._note_known(one)
            if one.silent is not None:
                for evidence in found[:MOST]:
                    self._hear(one, evidence)
                self._remember(one, replace(one.silent, until=self._clock()))
                one.silent = None
            return one.out

    def _leave_out(self, one: _Running, why: str) -> None:
        if one.out or self._closed.is_set():
            return
        one.out = True
        self._note_known(one)
        now = self._clock()
        text = service_jobs.DETECTOR_LEFT_OUT(detector=one.title, reason=why)
        self._remember(one, Seen(one.title, "node", "note", LEFT_OUT, "", text, now, 0.0))

    def _note_known(self, one: _Running) -> None:
        """Record that it is known whether this detector runs."""
        with self._lock:
            self._unknown -= not one.known
            last, one.known = not one.known and self._unknown == 0, True
        if last:
            self._begun([other.title for other in self._running if other.detector is not None and not other.out])


class _Running:
    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self.title = choice.name
        self.limit = NodeDetector.limit
        self.detector: NodeDetector | None = None
        self.since: float | None = None  # the begin of its current check, by the monotonic clock
        self.known = False  # whether it is known that it runs, or does not
        self.out = False  # it is disabled
        self._late = False  # its check took too long when last examined
        self._asked = "", 0.0  # the device that it waited for then, and since when
        self.silent: Seen | None = None  # the device in which its check has hung
        self.memory = _Memory()

    def begin(self, now: float) -> None:
        """Begin a look. `now`: the monotonic clock."""
        self.since, self._late, self._asked = now, False, ("", now)

    def is_late(self, now: float) -> bool:
        """Return whether the current check takes too long, twice in a row: once may mean that this process was stopped."""
        asked = self.detector.reading if self.detector is not None else ""
        if asked != self._asked[0]:
            self._asked = asked, now
        late, self._late = self._late, self.since is not None and now - self.since > self.limit
        return late and self._late

    def stuck_in(self, now: float) -> str:
        """Return the device for which the current check has waited for most of its time, or ""."""
        device, since = self._asked
        return device if now - since > self.limit / 2 else ""

    def make(self) -> NodeDetector | None:
        """Create the detector; None if there is nothing to detect."""
        if self._choice.missing():
            return None
        detector = self._choice.make()
        self.limit = detector.limit
        self.detector = detector
        return detector


def _close(detector: NodeDetector) -> None:
    with contextlib.suppress(Exception):  # there is no caller left to report to
        detector.close()


@dataclass
class _Reported:
    seen: Seen  # as last reported by the detector
    until: float  # as last sent
    at: float  # unix time at which it was sent


class _Memory:
    """The evidence of one detector. All times are unix times."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str, str, str], _Reported] = {}

    def take(self, seen: Seen, now: float) -> bool:
        """Keep evidence, and return whether it must be sent at once."""
        key = seen.subject, seen.part, seen.kind, seen.severity
        known = self._reported.get(key)
        if known is not None:
            known.seen = seen
            if _end(seen.until) >= _end(known.until) > now + 2 * AGAIN and 0 <= now - known.at < AGAIN:
                return False
            if seen.until == known.until and 0 <= now - known.at < AGAIN:
                return False
        elif len(self._reported) >= MOST:
            del self._reported[min(self._reported, key=lambda key: (_holds(self._reported[key].seen, now), self._reported[key].at))]
        self._reported[key] = _Reported(seen, seen.until, now)
        return True

    def due(self, now: float) -> list[Seen]:
        """Return the evidence that must be repeated now."""
        due = [one for one in self._reported.values() if _holds(one.seen, now) and not 0 <= now - one.at < AGAIN]
        for one in due:
            one.until, one.at = one.seen.until, now
        return [one.seen for one in due]

    def known(self, now: float) -> list[Seen]:
        return [one.seen for one in self._reported.values() if one.seen.severity == "suspect" or 0 <= now - one.at < KEPT]


def _end(until: float) -> float:
    return until or LAST_TIME


def _holds(seen: Seen, now: float) -> bool:
    """Return whether evidence is a valid suspicion. A note is not: it is sent once."""
    return seen.severity == "suspect" and not 0 < seen.until <= now

"""Detectors that look at this node: each on a thread of its own, so that one that hangs or takes long holds up itself only.

What they give goes to the orchestrator, which decides what follows, and may be given in one look only. So it is kept here (`_Memory`):

- What is new, or ends sooner than was told, is told at once. What has only been given again, or lasts longer, is told with the next repeat:
  a detector that looks often costs the connection little.
- A suspicion that holds is told again every `AGAIN` seconds, for as long as it holds. A job that has come to this node since hears of it
  so. The orchestrator acts once, and does not take up again what was seen before a person said that the node is to be trusted.
- After each connect, perhaps to another orchestrator, all of it is told (`known`): suspicions that hold or are over, and notes of the last
  `KEPT` seconds. So nothing has to wait for a connection.

What is given with an `until` that has passed is over, and takes the place of what held. A detector has room for `MOST` pieces; the oldest
go, first of those that do not hold.

A detector that raises, takes longer than its limit or floods is left out from then on and told about: that is evidence about itself, and,
if its look waits for a device, about that device, until the look ends. What it had seen before stands.

Known limits: what was seen is forgotten with this process. The agent that follows it sees again what is still to be seen.
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

AGAIN = 10.0  # seconds between two times that the same is told
KEPT = 3600.0  # seconds
MOST = 100  # pieces of evidence in one look, and of one detector that are kept
NO_ANSWER = "no-answer"  # kind of evidence against a device in which a look hangs
LOOK = 1.0  # seconds between two looks at the detectors themselves
CLOSING = 15.0  # seconds for them to end what they have started
_ABOUT = (Subject.NODE, Subject.DEVICE, Subject.LINK)


def looking(node: str, names: Sequence[str]) -> str:
    """For people; `names` are those of detectors, one at least."""
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
        """`send` and `begun` are called on any thread; `begun` once, with the names of those that look, when it is known of all. `clock`
        gives unix time. Starts one thread for each, and one that watches their limits.
        """
        self._send = send
        self._begun = begun
        self._clock = clock
        self._closed = threading.Event()
        self._lock = threading.RLock()
        self._running = [_Running(choice) for choice in choices if not choice.off]
        self._unknown = len(self._running)  # of how many it is not known whether they look
        for one in self._running:
            threading.Thread(target=self._run, args=(one,), name=f"understudy-detector-{one.title}", daemon=True).start()
        if self._running:
            threading.Thread(target=self._watch, name="understudy-detectors", daemon=True).start()

    def close(self) -> None:
        """They look no more, and what they have started ends. Waits for that. One that hangs goes with the process."""
        self._closed.set()
        made = [one.detector for one in self._running if one.detector is not None]
        closing = [threading.Thread(target=_close, args=(detector,), name="understudy-detector-close", daemon=True) for detector in made]
        for thread in closing:
            thread.start()
        ends = time.monotonic() + CLOSING
        for thread in closing:
            thread.join(max(0.0, ends - time.monotonic()))

    def known(self) -> list[Seen]:
        """All that an orchestrator should know that may know nothing of this node."""
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
        except Exception as error:  # whatever it raises speaks against itself only
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
        """A look takes too long. If it waits for a device, that speaks against the device."""
        if device := one.stuck_in(time.monotonic()):
            now, detail = self._clock(), agents.NO_ANSWER(device=device, detector=one.title, seconds=one.limit / 2)
            one.silent = Seen(one.title, "device", "suspect", NO_ANSWER, device, detail, now, 0.0)
            self._remember(one, one.silent)

    def _returned(self, one: _Running, found: Sequence[Evidence]) -> bool:
        """A look has come to its end. Return whether it took too long: then the device that it asked has answered, perhaps with evidence
        against itself, which is the last that is heard."""
        with self._lock:
            one.since = None
            self._told_apart(one)
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
        self._told_apart(one)
        now = self._clock()
        text = service_jobs.DETECTOR_LEFT_OUT(detector=one.title, reason=why)
        self._remember(one, Seen(one.title, "node", "note", LEFT_OUT, "", text, now, 0.0))

    def _told_apart(self, one: _Running) -> None:
        """It is known of this one whether it looks."""
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
        self.since: float | None = None  # its look goes on since then, by the monotonic clock
        self.known = False  # it looks, or not
        self.out = False  # it is left out
        self._late = False  # its look took too long at the last look at it
        self._asked = "", 0.0  # the device that it asked then, and since when
        self.silent: Seen | None = None  # the device in which a look of it has hung
        self.memory = _Memory()

    def begin(self, now: float) -> None:
        """Begin a look. `now`: the monotonic clock."""
        self.since, self._late, self._asked = now, False, ("", now)

    def is_late(self, now: float) -> bool:
        """Return whether the present look takes too long, twice in a row: once may mean that this process was stopped."""
        asked = self.detector.reading if self.detector is not None else ""
        if asked != self._asked[0]:
            self._asked = asked, now
        late, self._late = self._late, self.since is not None and now - self.since > self.limit
        return late and self._late

    def stuck_in(self, now: float) -> str:
        """Return the device for which the present look has waited for most of its time, or ""."""
        device, since = self._asked
        return device if now - since > self.limit / 2 else ""

    def make(self) -> NodeDetector | None:
        """None: there is nothing to look at."""
        if self._choice.missing():
            return None
        detector = self._choice.make()
        self.limit = detector.limit
        self.detector = detector
        return detector


def _close(detector: NodeDetector) -> None:
    with contextlib.suppress(Exception):  # there is nobody left to tell
        detector.close()


@dataclass
class _Told:
    seen: Seen  # as it was given last
    until: float  # as it was told last
    at: float  # unix time at which it was


class _Memory:
    """What one detector has given. All times are unix times."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str, str], _Told] = {}

    def take(self, seen: Seen, now: float) -> bool:
        """Whether it is to be told at once."""
        key = seen.subject, seen.part, seen.kind, seen.severity
        known = self._told.get(key)
        if known is not None:
            known.seen = seen
            if _end(seen.until) >= _end(known.until) > now + 2 * AGAIN and 0 <= now - known.at < AGAIN:
                return False
            if seen.until == known.until and 0 <= now - known.at < AGAIN:
                return False
        elif len(self._told) >= MOST:
            del self._told[min(self._told, key=lambda key: (_holds(self._told[key].seen, now), self._told[key].at))]
        self._told[key] = _Told(seen, seen.until, now)
        return True

    def due(self, now: float) -> list[Seen]:
        """What is to be told again."""
        due = [one for one in self._told.values() if _holds(one.seen, now) and not 0 <= now - one.at < AGAIN]
        for one in due:
            one.until, one.at = one.seen.until, now
        return [one.seen for one in due]

    def known(self, now: float) -> list[Seen]:
        return [one.seen for one in self._told.values() if one.seen.severity == "suspect" or 0 <= now - one.at < KEPT]


def _end(until: float) -> float:
    return until or LAST_TIME


def _holds(seen: Seen, now: float) -> bool:
    """A note does not: it was told."""
    return seen.severity == "suspect" and not 0 < seen.until <= now

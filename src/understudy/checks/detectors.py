"""Let every node detector look once: those that ship and have something to look at here, and those of other packages.

A suspicion fails the check; a note is a note. A detector that raises, or takes longer than its limit, counts against itself
only, so it is a note, too, as in an agent (`agent.detection`). Known limit: a counter that counts by its rise shows nothing in one look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice

from understudy.checks.base import Check, Figure, Result
from understudy.checks.options import Options
from understudy.detectors.base import Evidence, NodeDetector, Severity
from understudy.detectors.choice import Choice, choose
from understudy.detectors.configuration import first_line
from understudy.messages import node_check_detectors as messages

MOST = 100  # pieces of evidence of one look
LONGEST = 120.0  # seconds for all looks together, however many detectors there are


class Detectors(Check):
    name = "detectors"

    def __init__(self, options: Options, token: str = "", kinds: Callable[[], list[type[NodeDetector]]] | None = None) -> None:
        super().__init__(options, token)
        self._kinds = kinds
        self.limit = LONGEST + 30.0

    def run(self) -> Result:
        failures, notes, looked = list[str](), list[str](), list[_Look]()
        for choice in choose() if self._kinds is None else map(Choice.of, self._kinds()):
            look = _Look(choice)
            if why := look.missing():
                notes.append(messages.LEFT_OUT(detector=look.title, reason=why))
            else:
                looked.append(look)
        end = time.monotonic() + LONGEST
        for look in looked:
            look.begin()
        for look in looked:
            if problem := look.problem(end):
                notes.append(messages.SAYS_NOTHING(detector=look.title, problem=problem))
            for evidence in look.found:
                (failures if evidence.severity is Severity.SUSPECT else notes).append(_words(evidence))
        figures = [Figure(name=look.title, value=look.seconds, unit="s") for look in looked]
        titles = ", ".join(look.title for look in looked)
        silent = messages.NOTHING_SUSPECTED(detectors=titles) if looked else messages.NO_DETECTOR()
        return self.judged(failures, silent, figures, notes)


class _Look:
    """One look of one detector, on its own thread."""

    def __init__(self, choice: Choice) -> None:
        self.title = choice.name
        self.seconds = 0.0
        self.found: list[Evidence] = []
        self._choice = choice
        self._limit = NodeDetector.limit
        self._error = ""
        self._thread = threading.Thread(target=self._look, daemon=True)

    def missing(self) -> str:
        try:
            return first_line(self._choice.missing())
        except Exception as error:
            return first_line(f"{type(error).__name__}: {error}")

    def begin(self) -> None:
        self._thread.start()

    def problem(self, end: float) -> str:
        """Return the detector's own problem, after its look or at its limit; "" if it has none."""
        self._thread.join(max(0.0, min(self._limit, end - time.monotonic())))
        if self._thread.is_alive():
            return messages.TOO_SLOW()
        return self._error

    def _look(self) -> None:
        began = time.monotonic()
        try:
            detector = self._choice.make()
            self._limit = float(detector.limit)
            self.found = list(_current(detector))
        except Exception as error:  # whatever it raises counts against the detector only
            self._error = first_line(f"{type(error).__name__}: {error}")
        self.seconds = time.monotonic() - began


def _current(detector: NodeDetector) -> Iterator[Evidence]:
    """Yield the evidence that has not worn off. Raises `ValueError` for anything else than evidence, or too much of it."""
    now = time.time()
    for number, one in enumerate(islice(detector.look(), MOST + 1)):
        if number == MOST or not isinstance(one, Evidence) or not isinstance(one.severity, Severity):
            raise ValueError(messages.TOO_MUCH(most=MOST) if number == MOST else messages.NO_EVIDENCE(found=repr(one)))
        if not 0 < one.until <= now:
            yield one


def _words(evidence: Evidence) -> str:
    what = " ".join(filter(None, (str(evidence.subject), evidence.part)))
    kind = f" ({evidence.kind})" if evidence.kind else ""
    return messages.FOUND(detector=evidence.detector, subject=what, detail=evidence.detail, kind=kind)

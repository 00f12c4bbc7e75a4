"""`checks.detectors`: evidence of a detector fails the node or is noted, and a broken detector counts against itself only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.message_texts import has

from understudy.checks import detectors
from understudy.checks.base import Result, Verdict
from understudy.checks.detectors import MOST, Detectors
from understudy.checks.options import Options
from understudy.detectors.amdsmi import AmdSmi
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.detectors.kernel import Kernel
from understudy.detectors.nvml import Nvml
from understudy.messages import node_check_detectors as messages


def evidence(severity: Severity, detail: str, until: float = 0.0) -> Evidence:
    return Evidence("made-up", Subject.DEVICE, "", severity, detail, time.time(), "broken", "fan0", until)


def kind(look: Callable[[], Iterable[Any]], limit: float = 30.0, missing: str = "") -> type[NodeDetector]:
    class MadeUp(NodeDetector):
        name = "made-up"

        @classmethod
        def missing(cls) -> str:
            return missing

        def look(self) -> Iterable[Evidence]:
            return look()

    MadeUp.limit = limit
    return MadeUp


def found(*kinds: type[NodeDetector]) -> Result:
    return Detectors(Options(), kinds=lambda: list(kinds)).run()


def reported(detail: str) -> str:
    return messages.FOUND(detector="made-up", subject="device fan0", detail=detail, kind=" (broken)")


def test_those_that_ship_are_among_them() -> None:
    result = Detectors(Options()).run()
    for one in (Nvml, AmdSmi, Kernel):
        assert has(" ".join(result.notes), messages.LEFT_OUT, detector=one.name) == bool(one.missing())


def test_a_suspicion_fails() -> None:
    result = found(kind(list), kind(lambda: [evidence(Severity.SUSPECT, "the fan is loud"), evidence(Severity.NOTE, "dust")]))
    assert (result.verdict, result.detail) == (Verdict.FAILED, reported("the fan is loud"))
    assert result.notes == (reported("dust"),)


def test_a_note_does_not() -> None:
    result = found(kind(lambda: [evidence(Severity.NOTE, "dust")]))
    assert (result.verdict, result.detail) == (Verdict.PASSED, messages.NOTHING_SUSPECTED(detectors="made-up"))


def test_expired_evidence_does_not_count() -> None:
    assert found(kind(lambda: [evidence(Severity.SUSPECT, "it was hot", time.time() - 1)])).verdict is Verdict.PASSED
    assert found(kind(lambda: [evidence(Severity.SUSPECT, "it is hot", time.time() + 1000)])).verdict is Verdict.FAILED


def _raises() -> Iterable[Evidence]:
    raise OSError("no sensor\x1b[31m")


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (_raises, "OSError: no sensor\\x1b[31m"),
        (lambda: [evidence(Severity.SUSPECT, "again")] * (MOST + 1), f"ValueError: {messages.TOO_MUCH(most=MOST)}"),
        (lambda: ["the fan is loud"], f"ValueError: {messages.NO_EVIDENCE(found=repr('the fan is loud'))}"),
    ],
    ids=["raises", "floods", "no evidence"],
)
def test_one_that_does_not_work_speaks_against_itself(look: Callable[[], Iterable[Any]], words: str) -> None:
    result = found(kind(look), kind(lambda: [evidence(Severity.SUSPECT, "the fan is loud")]))
    assert messages.SAYS_NOTHING(detector="made-up", problem=words) in result.notes
    assert result.detail == reported("the fan is loud")
    assert found(kind(look)).verdict is Verdict.PASSED


def test_one_that_hangs_speaks_against_itself() -> None:
    over = threading.Event()
    result = found(kind(lambda: [over.wait()], limit=0.05))
    over.set()
    assert (result.verdict, result.notes) == (Verdict.PASSED, (messages.SAYS_NOTHING(detector="made-up", problem=messages.TOO_SLOW()),))


def test_many_that_hang_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detectors, "LONGEST", 0.2)
    over = threading.Event()
    result = found(*[kind(lambda: [over.wait()], limit=1000.0)] * 20)
    over.set()
    assert len(result.notes) == 20


def test_one_with_nothing_to_look_at_is_left_out() -> None:
    result = found(kind(_raises, missing="there is no fan"))
    assert (result.verdict, result.detail) == (Verdict.PASSED, messages.NO_DETECTOR())
    assert result.notes == (messages.LEFT_OUT(detector="made-up", reason="there is no fan"),)

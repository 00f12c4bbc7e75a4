"""Detectors in an agent: what they give is told, and what they do wrong is theirs alone."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from understudy.agent import detection
from understudy.agent.detection import NodeDetectors
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject
from understudy.links.messages import Seen, decode, encode
from understudy.orchestrator.detection import evidence_of

LIMIT = 30.0
HOT = Evidence("thermometer", Subject.DEVICE, "", Severity.SUSPECT, "91 degrees", 100.0, "hot", "gpu0", 200.0)


def detector(look: Callable[[], Iterable[Any]], **fields: Any) -> type[NodeDetector]:
    return type("Made", (NodeDetector,), {"name": "made", "every": 0.0, "look": lambda self: look(), **fields})


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., queue.Queue[Seen]]]:
    """Starts detectors; gives what they say."""
    monkeypatch.setattr(detection, "LOOK", 0.01)
    started: list[NodeDetectors] = []

    def start(*kinds: Callable[[], NodeDetector]) -> queue.Queue[Seen]:
        said: queue.Queue[Seen] = queue.Queue()
        started.append(NodeDetectors(kinds, said.put))
        return said

    yield start
    for one in started:
        one.close()


def test_what_one_sees_goes_over_the_wire_and_speaks_of_the_agent_s_own_node_only(running: Callable[..., queue.Queue[Seen]]) -> None:
    said = running(detector(lambda: [HOT])).get(timeout=LIMIT)
    again = decode(encode(said))
    assert again == said and isinstance(again, Seen)
    found = evidence_of(again, "n7")
    assert found == Evidence("thermometer", Subject.DEVICE, "n7", Severity.SUSPECT, "91 degrees", 100.0, "hot", "gpu0", 200.0)


def test_the_same_is_told_again_only_after_a_while(running: Callable[..., queue.Queue[Seen]], monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)

    def look() -> list[Evidence]:
        looks.release()
        return [HOT]

    said = running(detector(look))
    for _ in range(50):
        assert looks.acquire(timeout=LIMIT)
    assert said.qsize() == 1
    monkeypatch.setattr(detection, "AGAIN", 0.0)
    for _ in range(3):
        said.get(timeout=LIMIT)


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: ["hot"], "no evidence of something that has happened"),
        (lambda: [HOT] * 1000, "more than 100 things"),
        (lambda: iter(lambda: HOT, None), "more than 100 things"),
        (lambda: [Evidence("d", Subject.WORKER, "w0", Severity.SUSPECT, "slow", 1.0)], "speaks of that node and its parts"),
        (lambda: [Evidence("d", Subject.NODE, "", Severity.LOST, "gone", 1.0)], "speaks of that node and its parts"),
        (lambda: [Evidence("d", Subject.NODE, "", Severity.NOTE, "then", 1e300)], "no evidence of something that has happened"),
        (lambda: [Evidence("d", Subject.NODE, "", Severity.NOTE, "then", 1.0, until=float("inf"))], "no evidence"),
    ],
    ids=range(8),
)
def test_one_that_does_wrong_is_left_out_and_the_others_go_on(
    look: Callable[[], Iterable[Any]], why: str, running: Callable[..., queue.Queue[Seen]]
) -> None:
    said = running(detector(look), detector(lambda: [HOT]))
    both = {one.kind: one for one in (said.get(timeout=LIMIT), said.get(timeout=LIMIT))}
    assert both.keys() == {"hot", "detector-left-out"}
    note = both["detector-left-out"]
    assert (note.subject, note.severity, note.part) == ("node", "note", "")
    assert "the detector made is left out from now on: " in note.detail and why in note.detail


def test_one_that_cannot_be_made_is_left_out(running: Callable[..., queue.Queue[Seen]]) -> None:
    class Unmade(NodeDetector):
        name = "unmade"

        def __init__(self) -> None:
            raise OSError("no such device")

        def look(self) -> list[Evidence]:
            return []

    assert running(Unmade).get(timeout=LIMIT).detail == "the detector unmade is left out from now on: OSError: no such device"


def test_one_that_hangs_is_left_out_and_heard_no_more(running: Callable[..., queue.Queue[Seen]]) -> None:
    stuck, looked = threading.Event(), threading.Event()

    def look() -> list[Evidence]:
        stuck.wait(LIMIT)
        looked.set()
        return [HOT]

    said = running(detector(look, limit=0.02))
    assert said.get(timeout=LIMIT).detail.endswith("a look takes longer than 0.02 s")
    stuck.set()
    assert looked.wait(LIMIT)
    started = [thread for thread in threading.enumerate() if thread.name == "understudy-detector-made"]
    for thread in started:
        thread.join(LIMIT)
    assert said.empty()


def test_nobody_looks_after_the_end() -> None:
    said: queue.Queue[Seen] = queue.Queue()
    detectors = NodeDetectors([detector(lambda: [HOT])], said.put)
    said.get(timeout=LIMIT)
    detectors.close()
    ends = time.monotonic() + LIMIT
    while any(thread.name in ("understudy-detector-made", "understudy-detectors") for thread in threading.enumerate()):
        assert time.monotonic() < ends

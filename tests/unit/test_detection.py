"""Evidence and what follows from it; detectors of other packages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from tests.unit.core_job import Job

from understudy import extensions
from understudy.core.events import NodeTainted, WorkerLost
from understudy.core.model import JobSpec, LossCause
from understudy.detectors.base import GROUP, Detector, Evidence, JobView, Severity, Subject
from understudy.orchestrator.detection import OtherDetectors, event_of

LIMIT = 30.0
HOT = Evidence("thermometer", Subject.NODE, "n0", Severity.SUSPECT, "91 degrees", 100.0)
DEAD = Evidence("pulse", Subject.WORKER, "w1", Severity.LOST, "no pulse", 100.0)
VIEW = JobView(100.0, {0: "w0", 1: "w1"}, ["w2"], {"w0": "n0", "w1": "n0", "w2": "n0"})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Detectors as if other packages had them."""

    def install(*kinds: type[Detector]) -> list[str]:
        monkeypatch.setattr(extensions, "classes", lambda group, base: list(kinds) if group == GROUP else [])
        return []

    yield install


def collect(others: OtherDetectors, enough: Callable[[list[Evidence]], bool]) -> list[Evidence]:
    found, ends = list[Evidence](), time.monotonic() + LIMIT
    turn = threading.Event()
    try:
        while not enough(found):
            assert time.monotonic() < ends, found
            found += others.look(VIEW)
            turn.wait(0.005)
    finally:
        others.close()
    return found


def test_evidence_becomes_an_event_once() -> None:
    job = Job(JobSpec("job", world_size=2, workers_per_node=2, spares=1))
    state = job.machine.state
    node, worker = next(iter(state.nodes)), state.ranks[1]
    lost = Evidence("pulse", Subject.WORKER, worker, Severity.LOST, "no pulse", 100.0)
    assert event_of(lost, state) == WorkerLost(worker, LossCause.HUNG, "no pulse (pulse)", 100.0)
    hot = Evidence("thermometer", Subject.NODE, node, Severity.SUSPECT, "91 degrees", 100.0)
    tainted = event_of(hot, state)
    assert tainted == NodeTainted(node, "91 degrees (thermometer)")
    job.machine.handle(tainted, 100.0)
    job.machine.handle(WorkerLost(worker, LossCause.HUNG, "no pulse (pulse)", 100.0), 100.0)
    assert event_of(hot, state) is None, "it is known"
    assert event_of(lost, state) is None
    assert event_of(replace(DEAD, name="nobody"), state) is None
    assert event_of(replace(HOT, name="nowhere"), state) is None
    assert event_of(Evidence("d", Subject.NODE, node, Severity.NOTE, "warm", 1.0), state) is None, "a note is for a person"


def test_what_others_find_is_taken_with_a_look_and_one_that_raises_speaks_against_itself_only(
    installed: Callable[..., list[str]],
) -> None:
    stuck = threading.Event()

    class Broken(Detector):
        name = "broken"

        def look(self, job: JobView) -> Iterable[Evidence]:
            raise OSError("no such sensor")

    class Liar(Detector):
        name = "liar"

        def look(self, job: JobView) -> Iterable[Evidence]:
            return [Evidence("liar", Subject.NODE, "n0", Severity.SUSPECT, "", float("nan"))]

    class Stuck(Detector):
        name = "stuck"

        def look(self, job: JobView) -> Iterable[Evidence]:
            stuck.wait()
            return ()

    class Thermometer(Detector):
        name, every = "thermometer", 0.0

        def look(self, job: JobView) -> Iterable[Evidence]:
            assert job.ranks == VIEW.ranks
            return [HOT, Evidence("thermometer", Subject.NODE, "n1", Severity.NOTE, "70 degrees", 100.0)]

    class Flood(Detector):
        name = "flood"

        def look(self, job: JobView) -> Iterable[Evidence]:
            while True:
                yield HOT

    installed(Broken, Liar, Stuck, Flood, Thermometer)
    told: list[str] = []
    others = OtherDetectors(told.append)
    found = collect(others, lambda found: found.count(HOT) > 2 and len(told) > 3)
    stuck.set()
    assert {one.detector for one in found} == {"thermometer"}
    assert sorted(told)[0] == "node n1: 70 degrees (thermometer)"
    assert len(told) == 4, "each thing once"
    assert any("Broken is left out from now on: OSError: no such sensor" in text for text in told)
    assert any("Liar is left out" in text for text in told)
    assert any("Flood is left out from now on: ValueError: it finds more than 1000 things in one look" in text for text in told)


def test_a_detector_looks_no_faster_than_somebody_hears_of_it_and_not_after_the_end(installed: Callable[..., list[str]]) -> None:
    looks: list[threading.Thread] = []

    class Eager(Detector):
        name, every = "eager", 0.0

        def look(self, job: JobView) -> Iterable[Evidence]:
            looks.append(threading.current_thread())
            return [replace(HOT, detail=str(len(looks)))]

    installed(Eager)
    others = OtherDetectors(pytest.fail)
    found, ends = list[Evidence](), time.monotonic() + LIMIT
    while len(found) < 100:
        assert time.monotonic() < ends
        found += others.look(VIEW)
        assert len(looks) <= len(found) + 2, "it looks ahead by one"
    assert [one.detail for one in found] == [str(number) for number in range(1, len(found) + 1)], "and nothing of it is lost"
    others.close()
    looks[0].join(LIMIT)
    assert not looks[0].is_alive()

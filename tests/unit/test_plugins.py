"""What other packages add is found by its entry points, as `pip install` would leave them, and is used."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from understudy.chaos.registry import registry as faults
from understudy.core import events
from understudy.core.machine import Machine
from understudy.core.nouns import JobSpec, LossCause, Timeouts
from understudy.detectors.base import Detector, Scene
from understudy.detectors.hang import HangWatch
from understudy.detectors.heartbeats import Heartbeats
from understudy.detectors.registry import factories
from understudy.orchestrator.journal import JobJournal
from understudy.orchestrator.service import Service

Install = Callable[[str, str, str], None]

DETECTOR = """
from understudy.core.nouns import LossCause
from understudy.detectors.base import Evidence


class Hot:
    '''Of a rank whose node is too hot: says so once.'''

    def __init__(self, timeouts):
        self._told = set()

    def evidence(self, scene):
        found = [Evidence(worker, "its node is at 99 degrees", scene.at, cause=LossCause.CORRUPT)
                 for rank, worker in scene.ranks.items() if rank == 1 and not self._told]
        self._told.update(one.worker for one in found)
        return found


class Broken(Hot):
    def evidence(self, scene):
        raise OSError("the thermometer does not answer")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A package with one module `spilt`, and its entry points in a group."""

    def installed(source: str, group: str, entries: str) -> None:
        (tmp_path / "spilt.py").write_text(source)
        information = tmp_path / "spilt-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: spilt\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
        monkeypatch.syspath_prepend(tmp_path)
        forget()

    def forget() -> None:
        for registry in (faults, factories):
            registry.cache_clear()

    yield installed
    sys.modules.pop("spilt", None)
    forget()


def lost_by_detectors(detectors: dict[str, Detector]) -> tuple[list[events.WorkerLost], list[str]]:
    """What a service with two ranks journals and tells after two looks."""
    journalled: list[events.Event] = []
    told: list[str] = []

    async def job() -> None:
        machine = Machine(JobSpec("job", 2, 2, spares=1), Timeouts())
        journal = JobJournal(lambda entry: journalled.append(entry[1]) if isinstance(entry, tuple) else None)
        service = Service(machine, journal, tell=told.append, detectors=detectors)
        service.submit(events.NodeJoined("n0", "127.0.0.1", 0))
        for number in range(3):
            service.submit(events.WorkerWarm(f"w{number}", "127.0.0.1:7000"))
        for _ in range(2):
            service.look()

    asyncio.run(job())
    return [event for event in journalled if isinstance(event, events.WorkerLost)], told


def test_a_detector_of_another_package_is_found_and_believed(install: Install) -> None:
    assert DETECTOR.count("\n") < 40
    install(DETECTOR, "understudy.detectors", "hot = spilt:Hot\nbroken = spilt:Broken")
    assert sorted(factories()) == ["broken", "hot"]
    ((lost,), told) = lost_by_detectors({name: make(Timeouts()) for name, make in factories().items()})
    assert (lost.worker, lost.cause, lost.detail) == ("w1", LossCause.CORRUPT, "its node is at 99 degrees")
    assert told.count("the detector broken failed: OSError('the thermometer does not answer')") == 1, "once, and it ends nothing"


def test_an_entry_point_that_is_none(install: Install) -> None:
    install("COFFEE = 7", "understudy.detectors", "coffee = spilt:COFFEE")
    with pytest.raises(ValueError, match=r"the entry point coffee = spilt:COFFEE of understudy\.detectors is no maker of detectors"):
        factories()


def test_ours_are_detectors_too() -> None:
    """Which mypy has to agree to; and they say nothing of a job of which nothing is known."""
    ours: list[Detector] = [HangWatch(Timeouts()), Heartbeats(2.0, 0.2)]
    assert all(detector.evidence(Scene(0.0, 1e9)) == [] for detector in ours)

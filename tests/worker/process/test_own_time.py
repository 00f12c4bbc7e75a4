"""How much of its time a worker computes itself: looked up in a process that computes, waits, or does not know."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.integration.processes import LIMIT, wait_until

from understudy.common.page_view import UNKNOWN, Activity
from understudy.links.page import PageReader, PageWriter
from understudy.worker.generation.control_handlers import ControlHandlers
from understudy.worker.process.own_time import OwnTime, main_thread_runs


class Looked:
    """A worker's page, and what would be seen."""

    def __init__(self, folder: Path) -> None:
        self.page = PageWriter(folder / "page")
        self.reader = PageReader(folder / "page")
        self.at_work: bool | None = True
        self.own_time = OwnTime(self.page, lambda: self.at_work)
        self.now = 0.0
        self.own_time._looked = self.now

    def look(self, activity: Activity, at_work: bool | None, passed: float = 0.1) -> None:
        self.now += passed
        self.page.enter(activity, 3)
        self.at_work = at_work
        self.own_time.look(self.now)

    @property
    def shown(self) -> tuple[int, int, int, int]:
        view = self.reader.read()
        return view.looks, view.own_running, view.own_committing, view.own_idle


@pytest.fixture
def worker(tmp_path: Path) -> Looked:
    return Looked(tmp_path)


def test_each_sample_counts_for_the_time_since_the_one_before(worker: Looked) -> None:
    assert worker.shown == (0, 0, 0, 0)
    for activity, passed in ((Activity.RUNNING, 0.25), (Activity.COMMITTING, 0.125), (Activity.IDLE, 3.0), (Activity.RUNNING, 0.5)):
        worker.look(activity, True, passed)
    assert worker.shown == (4, 750, 125, 3000)
    for activity in (Activity.RUNNING, Activity.VOTED, Activity.IDLE):
        worker.look(activity, False)
    assert worker.shown == (7, 750, 125, 3000), "it waited"


def test_other_activities_do_not_count_and_neither_does_their_time(worker: Looked) -> None:
    worker.look(Activity.RUNNING, True, 0.125)
    for activity in (Activity.SETUP, Activity.RECOVERING, Activity.WARM, Activity.FINISHED):
        worker.look(activity, True, 60.0)
    worker.look(Activity.RUNNING, True, 0.125)
    assert worker.shown == (2, 250, 0, 0)


def test_what_cannot_be_known_is_not_shown(worker: Looked) -> None:
    worker.look(Activity.RUNNING, True)
    worker.look(Activity.RUNNING, None)
    assert worker.shown[0] == 0
    worker.look(Activity.RUNNING, True)
    assert worker.shown[0] == 1


def test_looks_come_by_themselves(worker: Looked) -> None:
    worker.page.enter(Activity.RUNNING, 3)
    worker.own_time.start()
    wait_until(lambda: worker.shown[0] >= 3 and worker.shown[1] > 0, "three looks", LIMIT)


def test_the_main_thread_is_seen_to_run_and_to_sleep() -> None:
    seen: list[bool] = []
    slept = threading.Event()

    def look(wanted: bool) -> None:
        while not seen or seen[-1] is not wanted:
            seen.append(main_thread_runs())
        slept.set()

    sleeping = threading.Thread(target=look, args=(False,), daemon=True)
    sleeping.start()
    assert slept.wait(LIMIT)
    seen.clear()
    computing = threading.Thread(target=look, args=(True,), daemon=True)
    computing.start()
    wait_until(lambda: sum(range(100_000)) and not computing.is_alive(), "a main thread that computes", LIMIT)


class Handlers(ControlHandlers):
    def __init__(self, waits: int) -> None:
        self.count = waits

    def waits(self, still: float = 0.0) -> int:
        return self.count


def test_who_waits_is_asked_only_while_the_main_thread_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: dict[str, bool] = {}
    monkeypatch.setattr("understudy.worker.generation.control_handlers.main_thread_runs", lambda: runs["now"])
    found = []
    for runs["now"] in (True, False):
        found += [Handlers(waits).at_work() for waits in (0, 2, UNKNOWN)]
    assert found == [True, True, True, True, False, None]


def test_a_kernel_that_does_not_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 0)
    assert Handlers(0).at_work() is None

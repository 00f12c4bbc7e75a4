"""A worker's waits are counted when it makes no progress, and a number that was found before it made progress again is not reported."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.integration.processes import LIMIT, wait_until

from understudy.common.page_view import UNKNOWN
from understudy.links.page import PageReader, PageWriter
from understudy.worker.process.wait_probe import WaitProbe


def never(still: float) -> int:
    pytest.fail(f"looked up after {still} seconds")


def test_nothing_is_looked_up_while_the_worker_gets_on(tmp_path: Path) -> None:
    lookout = WaitProbe(PageWriter(tmp_path / "page"))
    assert [lookout.waits(time.monotonic(), never) for _ in range(1000)] == [UNKNOWN] * 1000
    assert lookout._thread is None


def test_a_number_belongs_to_a_time_without_progress(tmp_path: Path) -> None:
    lookout, found = WaitProbe(PageWriter(tmp_path / "page")), 3
    before = time.monotonic() - 60.0
    wait_until(lambda: lookout.waits(before, lambda _: found) == 3, "the first number", LIMIT)
    assert lookout.waits(time.monotonic(), lambda _: found) == UNKNOWN
    found = 2
    wait_until(lambda: lookout.waits(before, lambda _: found) == 2, "it is looked up again", LIMIT)


def test_the_position_of_the_script_is_on_the_page_also_before_it_has_joined(tmp_path: Path) -> None:
    lookout = WaitProbe(PageWriter(tmp_path / "page"))
    wait_until(lambda: lookout.waits(time.monotonic() - 60.0, None) == UNKNOWN and bool(where(tmp_path)), "a line", LIMIT)
    assert "test_wait_probe.py" in where(tmp_path)


def where(folder: Path) -> str:
    return PageReader(folder / "page").read().where

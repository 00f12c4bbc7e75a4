"""The end of a job that nobody leads, as its node knows it."""

from __future__ import annotations

from pathlib import Path

from tests.said import said

from understudy.agent.output import Route
from understudy.agent.unled import end_of
from understudy.agent.worker import Worker
from understudy.common.page_view import Activity
from understudy.links.page import PageReader, PageWriter
from understudy.messages import agents


def worker(name: str, rank: int, *, finished: bool = False, failed: bool = False, alive: bool = True) -> Worker:
    return Worker(name, 4711, -1, Route(name), rank=rank, finished=finished, failed=failed, alive=alive)


def test_it_is_over_when_all_ranks_have_finished(tmp_path: Path) -> None:
    page = PageWriter(tmp_path / "w1.page")
    page.enter(Activity.FINISHED, 4)
    spare, first, second = worker("w2", -1), worker("w0", 0, finished=True, alive=False), worker("w1", 1)
    second.page = PageReader(tmp_path / "w1.page")
    assert end_of([first, second, spare], 2) is None, "it has not said so"
    second.finished = True
    end = end_of([first, second, spare], 2)
    assert end is not None and (end.exit_code, end.patient, end.told) == (0, True, False)
    assert said(end.message, agents.FINISHED_UNLED, ranks=2)
    assert end_of([first, second, spare], 4) is None, "others are elsewhere"
    page.enter(Activity.RUNNING, 4)
    assert end_of([first, second, spare], 2) is None, "it was called back"


def test_a_script_that_has_failed_ends_it() -> None:
    failed, other = worker("w0", 0, failed=True), worker("w1", 1)
    end = end_of([other, failed], 2)
    assert end is not None and end.exit_code == 1 and said(end.message, agents.FAILED_UNLED, worker=failed.label)
    assert end_of([worker("w2", -1, failed=True), other], 2) is None, "a spare's failure is none of the job's"

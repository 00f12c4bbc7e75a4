"""The end of a job without an orchestrator, as its node knows it."""

from __future__ import annotations

from pathlib import Path

from tests.message_texts import has

from understudy.agent.output import Route
from understudy.agent.unled import end_of
from understudy.agent.worker import Worker
from understudy.common.page_view import Activity
from understudy.links.page import PageReader, PageWriter
from understudy.messages import agents


def worker(name: str, rank: int, generation: int = 0, **states: bool) -> Worker:
    made = Worker(name, 4711, -1, Route(name), rank=rank, leaving=states.pop("failed", False))
    made.failed = made.leaving
    for state, value in states.items():
        setattr(made, state, value)
    made.replay_buffer.enter(generation)
    return made


def test_it_is_over_when_all_ranks_have_finished(tmp_path: Path) -> None:
    page = PageWriter(tmp_path / "w1.page")
    page.enter(Activity.FINISHED, 4)
    spare, first, second = worker("w2", -1), worker("w0", 0, finished=True, alive=False), worker("w1", 1)
    second.page = PageReader(tmp_path / "w1.page")
    assert end_of([first, second, spare], 2) is None, "it has not said so"
    second.finished = True
    end = end_of([first, second, spare], 2)
    assert end is not None and (end.exit_code, end.patient, end.ordered) == (0, True, False)
    assert has(end.message, agents.FINISHED_UNLED, ranks=2)
    assert end_of([first, second, spare], 4) is None, "others are elsewhere"
    page.enter(Activity.RUNNING, 4)
    assert end_of([first, second, spare], 2) is None, "it was called back"


def test_a_script_that_has_failed_ends_it() -> None:
    failed, other = worker("w0", 0, failed=True), worker("w1", 1)
    end = end_of([other, failed], 2)
    assert end is not None and end.exit_code == 1 and has(end.message, agents.FAILED_UNLED, worker=failed.label)
    assert end_of([worker("w2", -1, failed=True), other], 2) is None, "a spare's failure is none of the job's"


def test_a_failure_that_counted_as_a_loss_does_not_end_it() -> None:
    """A spare that failed in its set-up after it got the rank: the job went on with another one, here or elsewhere."""
    first, second = worker("w0", 0, 2), worker("w1", 1, 2)
    assert end_of([worker("w3", 0, 1, failed=True, alive=False), first, second], 2) is None
    assert end_of([worker("w3", 0, 1, failed=True, alive=False), second], 2) is None, "the rank is elsewhere"
    assert end_of([worker("w3", 0, 1, failed=True, fenced=True), second], 2) is None, "its process cannot be killed yet"
    assert end_of([worker("w3", 0, 1, failed=True), first, second], 2) is None, "another one has the rank"
    end = end_of([worker("w3", 0, 1, failed=True, alive=False), worker("w0", 0, 2, failed=True), second], 2)
    assert end is not None and end.exit_code == 1 and has(end.message, agents.FAILED_UNLED, worker="rank 0 w0")


def test_a_rank_has_finished_when_the_one_that_holds_it_has() -> None:
    """Of several workers that had it, in whatever order they were started."""
    other = worker("w1", 1, 2, finished=True)
    gone, back = worker("w0", 0, 1, finished=True, alive=False, fenced=True), worker("w3", 0, 2)
    for order in ([gone, back, other], [back, other, gone]):
        assert end_of(order, 2) is None, "it was called back, and another one does its work again"
    back.finished = True
    assert end_of([gone, back, other], 2) is not None
    newcomer, holder = worker("w0", 0, 2), worker("w3", 0, 1, finished=True)
    assert end_of([newcomer, holder, other], 2) is not None, "the migration had not come to its end"
    done, left = worker("w3", 0, 2, finished=True, alive=False), worker("w0", 0, 2, leaving=True)
    assert end_of([left, done, other], 2) is not None, "the rank has migrated to another worker of this node"
    assert end_of([worker("w0", 0, 2, leaving=True), other], 2) is None, "to another node"

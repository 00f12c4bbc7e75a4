"""What a rank puts into its collectives, in an attempt that is interrupted and in its redo: what is the same, and what is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.message_texts import has
from tests.worker.steps import step_of
from tests.worker.verification.issuing_rank import Group, Rank

from understudy.messages import calls
from understudy.messages.base import Message
from understudy.worker.collectives.interception import Collective
from understudy.worker.errors import BadMessage
from understudy.worker.generation.context import RankContext
from understudy.worker.progress import Progress
from understudy.worker.verification import issued, trails
from understudy.worker.verification.entries import RedoCompared
from understudy.worker.verification.issued import IssuedCollectives
from understudy.worker.verification.trails import marks_in


@pytest.fixture
def rank() -> Iterator[Rank]:
    rank = Rank()
    yield rank
    rank.issued.remove()
    assert not rank.issued.installed


def test_a_step_that_is_done_once_has_nothing_to_be_compared_with(rank: Rank) -> None:
    rank.call(torch.ones(4))
    assert rank.votes() == ("", RedoCompared(0, 0, 0, 0))


def test_a_redo_is_compared_as_far_as_the_interrupted_attempt_had_come(rank: Rank) -> None:
    rank.call(torch.ones(4))
    rank.call(torch.zeros(2), group="tp")
    rank.interrupted()
    rank.call(torch.zeros(2), group="tp")  # the order between groups is not fixed
    rank.call(torch.ones(4))
    rank.call(torch.full((4,), 5.0))
    assert rank.votes() == ("", RedoCompared(2, 3, 24, 40))


def test_another_number_is_named_with_the_parameter_that_is_in_it(rank: Rank) -> None:
    rank.net.weight.grad = torch.ones(2, 2)
    rank.call(torch.ones(1))
    rank.call(rank.net.weight.grad)
    rank.interrupted()
    rank.net.weight.grad.add_(1e-6)
    rank.call(torch.ones(1))
    rank.call(rank.net.weight.grad)
    rank.call(torch.ones(9))
    difference, compared = rank.votes()
    assert has(difference, calls.REDO_GIVES_ANOTHER, number=1, lane="0") and "net/parameter/weight/gradient" in difference
    assert compared == RedoCompared(1, 3, 4, 56)


@pytest.mark.parametrize(
    "other", [{"tensor": torch.ones(5)}, {"tensor": torch.ones(4, dtype=torch.float64)}, {"tensor": torch.ones(4), "root_rank": 1}]
)
def test_another_call_is_named_with_both(rank: Rank, other: dict[str, Any]) -> None:
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(**other)
    assert has(rank.votes()[0], calls.REDO_ISSUES_ANOTHER, number=0, lane="0")


def test_a_redo_that_calls_less_is_noticed_at_its_vote(rank: Rank) -> None:
    rank.call(torch.ones(4))
    rank.interrupted()
    assert has(rank.votes()[0], calls.REDO_ISSUES_LESS, number=0, lane="0")


def test_an_input_that_is_not_read_does_not_count(rank: Rank) -> None:
    for content in (torch.ones(4), torch.zeros(4)):
        rank.call(content, operator="broadcast_", root_rank=1)
        rank.call(content, operator="recv_", src=1)
        if content[0] == 1:
            rank.interrupted()
    assert rank.votes() == ("", RedoCompared(2, 2, 0, 0))


def test_of_several_attempts_the_first_one_that_came_to_a_collective_counts(rank: Rank) -> None:
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.ones(4))
    rank.call(torch.full((4,), 2.0))
    rank.interrupted()
    rank.call(torch.zeros(4))  # not as in the first attempt ...
    rank.interrupted()
    rank.call(torch.ones(4))
    rank.call(torch.full((4,), 3.0))  # ... nor as in the second
    assert has(rank.votes()[0], calls.REDO_GIVES_ANOTHER, number=1)


def test_a_redo_that_was_interrupted_is_no_evidence_for_the_next_one(rank: Rank) -> None:
    rank.call(torch.ones(4))
    for _ in range(2):
        rank.interrupted()
        rank.call(torch.ones(4))
        rank.call(torch.full((4,), 2.0))
    assert rank.votes() == ("", RedoCompared(1, 2, 16, 32)) and len(rank.marks) == 1, "nor for a newcomer"


@pytest.mark.parametrize("numbers", [(1.0, 1.0), (1.0, 2.0)])
def test_sparse_gradients_stand_in_the_way_of_nothing(rank: Rank, numbers: tuple[float, float]) -> None:
    for number in numbers:
        rank.call(torch.ones(4))
        rank.call(torch.eye(3).to_sparse())
        rank.call(torch.full((4,), number))
        if not rank.issued._before:
            rank.interrupted()
    difference, compared = rank.votes()
    assert (bool(difference), compared.collectives, compared.of) == ((False, 2, 3) if numbers[1] == 1.0 else (True, 1, 3))


def test_an_attempt_of_which_not_all_is_noted_is_not_compared_as_a_whole(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.ones(4))
    monkeypatch.setattr(issued, "sampled", lambda *_: (_ for _ in ()).throw(ValueError("it has no content")).__next__())
    rank.call(torch.zeros(4))
    assert rank.votes()[1].collectives < rank.issued.found.compared.of


def test_numbers_of_a_call_that_is_issued_in_every_step_are_sure_to_matter(rank: Rank) -> None:
    for more in (0, 1):
        for number in (1.0, 2.0):
            rank.issued.begin(rank.step)
            rank.issued.attempt(rank.step)
            rank.call(torch.full((4,), number))
            if more:  # for the first time, as every hundredth step sums up times
                rank.call(torch.full((1,), number), group="times")
            if number == 1.0 and not more:
                rank.issued.before_vote(rank.step)
                rank.issued.committed(rank.step)
    found = []
    for size, group in ((1, "times"), (4, "0"), (5, "0")):  # another call in the end: the script may have caught an error
        rank.interrupted()
        rank.call(torch.full((size,), 9.0), group=group)
        rank.issued.before_vote(rank.step)
        found.append((bool(rank.issued.found.difference), rank.issued.found.sure))
    assert found == [(True, False), (True, True), (True, False)]


def test_where_a_framework_issues_others_in_a_redo_nothing_is_compared(rank: Rank) -> None:
    """As DDP does with a static graph, which counts again."""
    rank.another_way = "static graph"
    rank.issued.attempt(rank.step)
    rank.call(torch.ones(4))
    rank.another_way = ""  # as a group that was gathered then is not any more
    rank.interrupted()
    rank.call(torch.ones(4, dtype=torch.int32))
    assert rank.votes() == ("", RedoCompared(0, 0, 0, 0))


def test_what_cannot_be_read_is_not_counted_as_the_same(rank: Rank) -> None:
    for _ in range(2):
        rank.call(torch.empty(4, device="meta"))
        rank.call(torch.ones(4))
        if not rank.issued._before:
            rank.interrupted()
    assert rank.votes() == ("", RedoCompared(1, 2, 16, 32))


def test_a_redo_that_is_noted_in_part_is_not_reported_to_call_less(rank: Rank) -> None:
    rank.call(torch.ones(4))
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.ones(4))

    def timed_out() -> None:
        raise RuntimeError("not done yet")

    with pytest.raises(RuntimeError):
        rank.issued.wait(None, timed_out)  # type: ignore[arg-type]
    rank.call(torch.ones(4))
    assert rank.votes()[0] == ""


def test_a_wait_that_fails_on_a_thread_of_the_script_changes_nothing(rank: Rank) -> None:
    def waits() -> None:
        with pytest.raises(RuntimeError):
            rank.issued.wait(None, lambda: (_ for _ in ()).throw(RuntimeError("of a checkpoint")).__next__())  # type: ignore[arg-type]

    on_thread(waits)
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.ones(4))
    assert rank.votes() == ("", RedoCompared(1, 1, 16, 16))


def test_a_collective_whose_content_cannot_be_read_is_issued_all_the_same(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> None:
        raise ValueError("it has no content")

    monkeypatch.setattr(issued, "sampled", unreadable)
    rank.call(torch.ones(4))
    rank.interrupted()
    assert rank.votes() == ("", RedoCompared(0, 0, 0, 0))


def test_collectives_after_the_end_of_the_generation_do_not_count(rank: Rank) -> None:
    """What comes before it may have given anything."""
    rank.call(torch.ones(4))
    rank.over = True
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.ones(4))
    rank.call(torch.zeros(4))
    assert rank.votes() == ("", RedoCompared(1, 2, 16, 32))


@pytest.mark.parametrize("number", [1.0, 2.0])
def test_the_first_one_of_an_attempt_counts_even_then(rank: Rank, number: float) -> None:
    """Nothing that it reads comes from others."""
    rank.over = True
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.full((4,), number))
    difference, compared = rank.votes()
    assert (bool(difference), compared.collectives) == ((False, 1) if number == 1.0 else (True, 0))


@pytest.mark.parametrize("fails", ["issue", "wait"])
def test_what_follows_a_failure_does_not_count_either(rank: Rank, fails: str) -> None:
    """Even if the script catches that, and goes on."""

    def broken() -> None:
        raise RuntimeError("connection closed by peer")

    rank.call(torch.ones(4))
    with pytest.raises(RuntimeError):
        if fails == "issue":
            rank.issued.call(Collective("allreduce_", Group("0"), {"tensors": [torch.ones(3)]}), broken)  # type: ignore[arg-type]
        else:
            rank.issued.wait(None, broken)  # type: ignore[arg-type]
    rank.call(torch.full((4,), float("nan")))
    rank.interrupted()
    rank.call(torch.ones(4))
    if fails == "issue":
        rank.call(torch.ones(3))
    rank.call(torch.ones(4))
    assert rank.votes()[0] == ""


def newcomer_of(lost: Rank) -> Rank:
    lost.issued.remove()
    rank = Rank()
    sent = lost.sent + lost.sent_with_next
    rank.issued.adopt(b"".join((sent[0], *(part[8:] for part in sent[1:]))) if sent else b"")
    rank.issued.begin(rank.step)
    rank.issued.attempt(rank.step)
    return rank


@pytest.mark.parametrize(
    ("number", "size", "evident", "same", "message"),
    [(2.0, 4, True, 2, None), (3.0, 4, True, 1, calls.LOST_GAVE_ANOTHER), (2.0, 5, True, 1, calls.LOST_ISSUED_ANOTHER)],
)
def test_a_newcomer_is_compared_with_the_marks_of_the_lost_worker(
    number: float, size: int, evident: bool, same: int, message: Message | None
) -> None:
    lost = Rank()
    lost.call(torch.ones(4))
    lost.call(torch.full((4,), 2.0), group="tp")
    lost.issued.before_vote(lost.step)
    rank = newcomer_of(lost)
    rank.call(torch.full((size,), number), group="tp")
    rank.call(torch.ones(4))
    rank.call(torch.zeros(4))
    difference, compared = rank.votes()
    assert (rank.issued.is_new, rank.issued.found.evident, compared.collectives, compared.of) == (True, evident, same, 3)
    assert has(difference, message, number=0, lane="tp") if message else not difference
    rank.issued.committed(rank.step)
    assert not rank.issued.is_new
    rank.issued.remove()


def test_a_newcomer_that_calls_less_than_the_lost_worker_is_noticed() -> None:
    lost = Rank()
    for _ in range(3):
        lost.call(torch.ones(4))
    lost.issued.before_vote(lost.step)
    rank = newcomer_of(lost)
    rank.call(torch.ones(4))
    assert has(rank.votes()[0], calls.LOST_ISSUED_MORE, count=3, issued=1)
    rank.issued.remove()


@pytest.mark.parametrize("sent", [True, False])
def test_a_newcomer_has_no_evidence_if_no_input_was_sent(sent: bool) -> None:
    """A barrier and data from others are no evidence about the state."""
    lost = Rank()
    if sent:
        lost.call(torch.ones(4), operator="recv_", src=1)
        lost.issued.before_vote(lost.step)
    rank = newcomer_of(lost)
    rank.call(torch.zeros(4), operator="recv_", src=1)
    rank.call(torch.ones(4))
    assert (rank.votes()[0], rank.issued.found.evident, rank.issued.is_new) == ("", False, True)
    rank.issued.remove()


def test_marks_of_another_transaction_are_not_compared() -> None:
    lost = Rank()
    lost.call(torch.ones(4))
    lost.issued.before_vote(lost.step)
    lost.sent = [bytes([lost.sent[0][0] + 1]) + lost.sent[0][1:]]
    rank = newcomer_of(lost)
    rank.call(torch.zeros(4))
    assert rank.votes()[0] == ""
    rank.issued.remove()


@pytest.mark.parametrize("data", [b"\0", b"\0" * 9, b"\7" + b"\0" * 39])
def test_a_trail_that_is_none_is_refused(data: bytes) -> None:
    rank = Rank()
    with pytest.raises(BadMessage):
        rank.issued.adopt(data)
    rank.issued.remove()


def test_marks_are_sent_now_and_then_and_the_rest_with_the_vote(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent = 100.0, []
    monkeypatch.setattr(trails, "time", SimpleNamespace(monotonic=lambda: now))
    for number in range(4):
        rank.call(torch.full((4,), float(number)))
        sent.append(len(rank.marks))
        now += trails.GAP * 0.6
    rank.issued.before_vote(rank.step)
    assert (sent, len(rank.marks)) == ([1, 1, 3, 3], 3) and len({mark.given for mark in rank.marks}) == 3
    assert [mark.size for data in rank.sent_with_next for mark in marks_in(data, 7)] == [16]
    rank.issued.begin(rank.step)
    rank.issued.attempt(rank.step)
    rank.call(torch.ones(4))
    assert len(rank.marks) == 4


def test_a_trail_has_no_gap(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trails, "GAP", 0.0)
    rank.call(torch.ones(4))
    rank.takes = False
    rank.call(torch.ones(5))
    rank.takes = True
    rank.call(torch.ones(6))
    rank.issued.before_vote(rank.step)
    assert [mark.size for mark in rank.marks] == [16, 20], "the connection has not taken all of the second one"


def on_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_a_thread_of_the_script_issues_does_not_count(rank: Rank) -> None:
    on_thread(lambda: rank.call(torch.ones(4)))
    rank.interrupted()
    assert rank.votes() == ("", RedoCompared(0, 0, 0, 0))


def test_the_next_transaction_knows_nothing_of_the_last(rank: Rank) -> None:
    rank.call(torch.ones(4))
    rank.interrupted()
    rank.call(torch.ones(4))
    rank.issued.before_vote(rank.step)
    rank.issued.committed(rank.step)
    rank.issued.begin(rank.step)
    rank.issued.attempt(rank.step)
    rank.call(torch.zeros(4))
    assert rank.votes() == ("", RedoCompared(0, 0, 0, 0))


def test_a_spare_that_computes_alone_notes_nothing() -> None:
    rank = Rank()
    rank.issued.remove()
    alone = step_of(alone=True)
    spare = IssuedCollectives(RankContext(Progress(0, 2), *[None] * 3))  # type: ignore[arg-type]
    spare.attempt(alone)
    assert not spare.installed


def test_objects_are_compared_and_not_their_pickles(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    for pickle, objects in ((b"\1\2", 7), (b"\2\1\3", 7)):
        monkeypatch.setattr(issued, "moved_objects", lambda objects=objects: objects)
        rank.call(torch.tensor(list(pickle), dtype=torch.uint8))
        if len(pickle) == 2:
            rank.interrupted()
    assert rank.votes()[0] == "" and rank.issued.found.evident


def test_objects_that_cannot_be_read_are_no_evidence(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued, "moved_objects", lambda: 0)
    rank.call(torch.tensor([1, 2], dtype=torch.uint8))
    rank.interrupted()
    rank.call(torch.tensor([1, 3], dtype=torch.uint8))
    difference, compared = rank.votes()
    assert (difference, compared.collectives, rank.issued.found.evident) == ("", 0, False)

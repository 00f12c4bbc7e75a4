"""What a rank puts into its collectives from an accelerator: known only when its stream has come there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.integration.processes import wait_until
from tests.message_texts import has
from tests.worker.verification.issuing_rank import Rank

from understudy.messages import calls
from understudy.worker.errors import GenerationAborted
from understudy.worker.verification import trails
from understudy.worker.verification.device_samples import DeviceSample, DeviceSamples
from understudy.worker.verification.entries import RedoCompared


@pytest.fixture
def rank() -> Iterator[Rank]:
    rank = Rank()
    yield rank
    rank.issued.remove()


class Sample(DeviceSample):
    """Arrives when a test lets it."""

    def __init__(self, digest: int) -> None:
        self.digest, self.arrived = digest, False

    def value(self) -> int | None:
        return self.digest if self.arrived else None


class Device:
    """In place of an accelerator: its tensors are torch's "meta" ones, and the test sets their contents."""

    def __init__(self, rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rank, self._holds, self.restarts = rank, 0, 0
        self.taken: list[Sample] = []
        monkeypatch.setattr(DeviceSamples, "take", lambda samples, tensor, offset: self._take())
        monkeypatch.setattr(DeviceSamples, "restart", lambda samples: self._restart())

    def call(self, *numbers: int) -> None:
        """Issue a collective of each of these."""
        for self._holds in numbers:
            self._rank.call(torch.empty(4, device="meta"))

    def arrive(self, *numbers: int) -> None:
        for number in numbers:
            self.taken[number].arrived = True

    def _take(self) -> Sample:
        self.taken.append(Sample(self._holds))
        return self.taken[-1]

    def _restart(self) -> None:
        self.restarts += 1


@pytest.fixture
def device(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(trails, "GAP", 0.001)
    return Device(rank, monkeypatch)


def test_of_a_broken_attempt_counts_what_had_arrived_before_its_communicators_were_broken(rank: Rank, device: Device) -> None:
    device.call(1, 2, 3)
    device.arrive(0, 1)
    rank.issued.freeze()
    device.arrive(2)  # perhaps what a broken collective has left
    rank.interrupted()
    device.call(1, 2, 7)
    device.arrive(3, 4, 5)
    assert rank.votes()[0] == "" and rank.issued.found.compared.collectives == 2
    assert device.restarts == 1


def test_of_a_redo_that_is_interrupted_nothing_counts_that_arrives_later(rank: Rank, device: Device) -> None:
    device.call(1)
    device.arrive(0)
    rank.interrupted()
    device.call(1, 2)
    device.arrive(1)
    rank.issued.freeze()
    device.arrive(2)
    assert rank.votes() == ("", RedoCompared(1, 2, 16, 32))
    rank.interrupted()
    device.call(1, 9)
    device.arrive(3, 4)
    assert rank.votes() == ("", RedoCompared(1, 2, 16, 32)), "the second was never known"


def test_what_a_redo_puts_in_otherwise_is_seen(rank: Rank, device: Device) -> None:
    device.call(1)
    device.arrive(0)
    rank.issued.freeze()
    rank.interrupted()
    device.call(2)
    device.arrive(1)
    assert has(rank.votes()[0], calls.REDO_GIVES_ANOTHER, number=0, lane="0")


def test_of_an_attempt_that_a_drill_breaks_off_all_counts_that_has_arrived(rank: Rank, device: Device) -> None:
    device.call(1)
    device.arrive(0)
    rank.interrupted()
    device.call(1)
    device.arrive(1)
    assert rank.votes()[0] == "" and rank.issued.found.compared.collectives == 1


def test_what_cannot_be_taken_is_not_compared(rank: Rank, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceSamples, "take", lambda samples, tensor, offset: None)
    device.call(1)
    rank.interrupted()
    device.call(2)
    assert rank.votes() == ("", RedoCompared(0, 1, 0, 16))


def test_marks_are_sent_when_they_have_arrived_though_the_script_issues_nothing_more(rank: Rank, device: Device) -> None:
    device.call(1, 2, 3)
    device.arrive(0, 2)
    wait_until(lambda: [mark.given for mark in rank.marks] == [1], "the first mark, as far as there is no gap")
    device.arrive(1)
    wait_until(lambda: [mark.given for mark in rank.marks] == [1, 2, 3], "the others")


@pytest.mark.parametrize("end", ["vote", "abort", "failure"])
def test_after_the_end_of_an_attempt_no_marks_of_it_are_sent(rank: Rank, device: Device, end: str) -> None:
    device.call(1)
    if end == "vote":
        rank.issued.before_vote(rank.step)
    elif end == "abort":
        rank.issued.freeze()
    else:
        rank.issued.failed(rank.step, GenerationAborted())
    device.arrive(0)
    rank.issued.attempt(rank.step)
    device.call(5)
    device.arrive(1)
    wait_until(lambda: bool(rank.marks), "the mark of the next attempt")
    assert [mark.given for mark in rank.marks] == [5]

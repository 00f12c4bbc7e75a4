"""What a rank puts into its collectives from an accelerator: known only when its stream has come there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from tests.said import said
from tests.worker.verification.issuing_rank import Rank

from understudy.messages import calls
from understudy.worker.errors import GenerationAborted
from understudy.worker.verification import issued
from understudy.worker.verification.device_samples import DeviceSample, DeviceSamples
from understudy.worker.verification.issued import RedoCompared


@pytest.fixture
def rank() -> Iterator[Rank]:
    rank = Rank()
    yield rank
    rank.issued.remove()


class Device:
    """In place of an accelerator: a sample's digest is the first number of its tensor, and is there when `come` has let it come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[DeviceSample] = []
        self.fails = False
        self.rank: Rank
        self._here: set[int] = set()
        monkeypatch.setattr(issued, "sampled", lambda tensor, offset: self._take(tensor))
        monkeypatch.setattr(DeviceSamples, "collect", lambda samples: self._collect())
        monkeypatch.setattr(DeviceSamples, "hurry", lambda samples, limit: self.look())

    def come(self, *numbers: int) -> None:
        """From now on these are there, by their order."""
        self._here |= set(numbers)

    def look(self) -> None:
        """As the thread does."""
        with suppress(RuntimeError):
            self._collect()
        self.rank.issued._come()

    def _take(self, tensor: torch.Tensor) -> DeviceSample:
        self.taken.append(DeviceSample(None, int(tensor[0]), 0, None))  # type: ignore[arg-type]
        return self.taken[-1]

    def _collect(self) -> None:
        if self.fails:
            raise RuntimeError("an illegal memory access")
        for number in self._here:
            self.taken[number].digest = self.taken[number].begin


@pytest.fixture
def device(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device(monkeypatch)
    device.rank = rank
    return device


def test_of_a_broken_attempt_counts_what_had_come_before_its_communicators_were_broken(rank: Rank, device: Device) -> None:
    for number in (1.0, 2.0, 3.0):
        rank.call(torch.full((4,), number))
    device.come(0, 1)
    rank.issued.freeze()
    device.come(2)  # perhaps what a broken collective has left
    rank.interrupted()
    for number in (1.0, 2.0, 7.0):
        rank.call(torch.full((4,), number))
    device.come(3, 4, 5)
    assert rank.votes()[0] == "" and rank.issued.found.compared.collectives == 2


def test_what_a_redo_puts_in_otherwise_is_seen(rank: Rank, device: Device) -> None:
    rank.call(torch.ones(4))
    device.come(0)
    rank.issued.freeze()
    rank.interrupted()
    rank.call(torch.full((4,), 2.0))
    device.come(1)
    assert said(rank.votes()[0], calls.REDO_GIVES_ANOTHER, number=0, lane="0")


def test_of_an_attempt_that_a_drill_breaks_off_all_counts_that_has_come(rank: Rank, device: Device) -> None:
    rank.call(torch.ones(4))
    device.come(0)
    rank.interrupted()
    rank.call(torch.ones(4))
    device.come(1)
    assert rank.votes()[0] == "" and rank.issued.found.compared.collectives == 1


def test_a_device_that_fails_ends_nothing(rank: Rank, device: Device) -> None:
    device.fails = True
    rank.call(torch.ones(4))
    rank.issued.freeze()
    rank.interrupted()
    rank.call(torch.ones(4))
    assert rank.votes() == ("", RedoCompared(0, 1, 0, 16))


def test_marks_are_sent_when_they_have_come_though_the_script_issues_nothing_more(rank: Rank, device: Device) -> None:
    for number in (1.0, 2.0, 3.0):
        rank.call(torch.full((4,), number))
    assert rank.marks == []
    device.come(0, 2)
    device.look()
    assert [mark.given for mark in rank.marks] == [1], "as far as there is no gap"
    device.come(1)
    device.look()
    assert [mark.given for mark in rank.marks] == [1, 2, 3]


@pytest.mark.parametrize("end", ["vote", "abort", "failure"])
def test_after_the_end_of_an_attempt_no_marks_of_it_are_sent(rank: Rank, device: Device, end: str) -> None:
    rank.call(torch.ones(4))
    if end == "vote":
        rank.issued.before_vote(rank.step)
    elif end == "abort":
        rank.issued.freeze()
    else:
        rank.issued.failed(rank.step, GenerationAborted())
    device.come(0)
    device.look()
    assert rank.marks == []
    rank.issued.attempt(rank.step)
    rank.call(torch.full((4,), 5.0))
    device.come(1)
    device.look()
    assert [mark.given for mark in rank.marks] == [5]

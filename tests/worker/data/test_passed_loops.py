"""A newcomer passes a loop by that is over: whatever counts in its loader has counted as on the rank that ran it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from understudy.worker.data.loaders import Counter, LoaderSource, Source
from understudy.worker.data.loops import Loops, iterate
from understudy.worker.encoding.messages import Boundary, BuddyCopy, CopyDigests
from understudy.worker.errors import BatchMismatch
from understudy.worker.state.streams import Randomness

SIZE = 10


class Counts(Sampler[int]):
    """A sampler whose order depends on how often it was drawn from; it counts its passes, too, once one is over."""

    def __init__(self) -> None:
        self.drawn = self.passes = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(SIZE):
            self.drawn += 1
            yield (number * 3 + self.drawn // SIZE) % SIZE
        self.passes += 1

    def __len__(self) -> int:
        return SIZE


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        return index


class Augmented(Numbers):
    """A dataset whose items depend on how much it has given, which cannot be set."""

    given = 0

    def __getitem__(self, index: int) -> int:
        self.given += 1
        return index + self.given


class Noisy(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(SIZE):
            yield torch.rand(1)


class Rank:
    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.randomness = Randomness()
        self.loops = Loops(self.randomness)
        self.copy = BuddyCopy(0, [0, 0, 0], 0, {}, None, {}, {}, CopyDigests({}, {}))

    def source(self, repeat: bool) -> Source:
        return Counter() if self.loader is None else LoaderSource(self.loader, repeat, self.randomness)

    def run(self, steps: int | None, last: int | None = None) -> list[Any]:
        """A loop, up to a break in iteration `last`."""
        self.loops.enter()
        found = []
        for batch in iterate(self.loops, self.source(steps is not None), 0, steps, lambda iteration: None):
            found.append(batch)
            torch.rand(3)  # the training draws
            boundary = self.loops.boundary
            assert boundary is not None
            self.copy.boundary = Boundary(**vars(boundary))
            self.copy.streams = self.randomness.capture()
            if len(found) - 1 == last:
                break
        self.loops.leave(0)
        return found

    def pass_by(self, lost: Rank, steps: int | None, registered: bool = False) -> None:
        loop = self.loops.enter()
        self.loops.pass_by(self.source(steps is not None), lost.copy, 0, lost.loops.drained[loop], registered)
        assert self.loops.next_place() == [loop, -1, 0] and self.loops.boundary is None
        self.loops.leave(0)


def loader() -> DataLoader[int]:
    return DataLoader(Numbers(), batch_size=4, sampler=Counts())


WAYS: list[tuple[int | None, int | None]] = [(None, None), (None, 1), (2, None), (3, None), (5, 2), (8, None)]  # steps, break


@pytest.mark.parametrize(("steps", "last"), WAYS)
def test_a_sampler_that_counts_has_counted(steps: int | None, last: int | None) -> None:
    lost, newcomer = Rank(loader()), Rank(loader())
    lost.run(steps, last)
    newcomer.pass_by(lost, steps)
    assert vars(newcomer.loader.sampler) == vars(lost.loader.sampler)
    assert newcomer.loops.drained == lost.loops.drained == [steps is None and last is None]


def test_also_in_loops_before_the_last_one() -> None:
    lost, newcomer = Rank(loader()), Rank(loader())
    for _ in range(3):
        lost.run(None)
    for _ in range(3):
        newcomer.pass_by(lost, None)
    assert vars(newcomer.loader.sampler) == vars(lost.loader.sampler)
    assert [batch.tolist() for batch in newcomer.run(None)] == [batch.tolist() for batch in lost.run(None)]


def test_a_sampler_that_does_not_count_is_run_through_once() -> None:
    class Plain(Sampler[int]):
        runs = 0

        def __iter__(self) -> Iterator[int]:
            type(self).runs += 1
            return iter(range(SIZE))

        def __len__(self) -> int:
            return SIZE

    lost, newcomer = (Rank(DataLoader(Numbers(), batch_size=4, sampler=Plain())) for _ in range(2))
    for _ in range(5):
        lost.run(None)
    Plain.runs = 0
    for _ in range(5):
        newcomer.pass_by(lost, None)
    assert Plain.runs == 2  # and once more for the batch of the last one


def test_a_count_that_is_lost_is_found_out() -> None:
    """An earlier loop was left in its middle, which is not known any more: the proof fails."""
    lost, newcomer = Rank(loader()), Rank(loader())
    lost.run(None, 1)
    lost.run(None)
    newcomer.pass_by(lost, None)
    with pytest.raises(BatchMismatch):
        newcomer.pass_by(lost, None)


def test_registered_state_comes_later() -> None:
    lost, newcomer = Rank(loader()), Rank(loader())
    lost.run(None, 1)
    lost.run(None)
    for _ in range(2):
        newcomer.pass_by(lost, None, registered=True)


def augmented() -> DataLoader[int]:
    return DataLoader(Augmented(), batch_size=4)


def noisy() -> DataLoader[torch.Tensor]:
    return DataLoader(Noisy(), batch_size=4)


def test_a_loader_that_does_not_give_the_same_twice_is_found_out() -> None:
    lost, newcomer = Rank(augmented()), Rank(augmented())
    lost.run(None)
    with pytest.raises(BatchMismatch):
        newcomer.pass_by(lost, None)


def test_one_that_draws_from_the_streams_of_the_training_proves_nothing() -> None:
    lost, newcomer = Rank(noisy()), Rank(noisy())
    lost.run(None)
    newcomer.pass_by(lost, None)


def test_batches_that_cannot_be_compared_are_not_drawn() -> None:
    lost, newcomer = Rank(loader()), Rank(loader())
    lost.run(None)
    assert lost.copy.boundary is not None
    lost.copy.boundary.opaque = "a thing"
    newcomer.pass_by(lost, None)
    assert newcomer.loader.sampler.drawn == 0


@pytest.mark.parametrize("make", [lambda: None, loader])
def test_the_streams_can_be_set_as_the_rank_had_them(make: Callable[[], Any]) -> None:
    torch.manual_seed(3)
    lost, newcomer = Rank(make()), Rank(make())
    lost.run(4)
    after = torch.rand(1)
    torch.manual_seed(4)
    newcomer.pass_by(lost, 4)
    newcomer.randomness.restore(lost.copy.streams)
    assert torch.equal(torch.rand(1), after)

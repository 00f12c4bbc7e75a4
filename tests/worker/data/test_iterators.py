"""An iterator of the job goes on at the position of another worker's, or of an attempt before, and notices if it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.message_texts import refused
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from understudy.messages import loading
from understudy.worker.data.iterators import LoaderIterator
from understudy.worker.data.loaders import LoaderSource
from understudy.worker.errors import UsageError
from understudy.worker.state.streams import ITERATOR, Randomness

SIZE = 10
NAME = f"{ITERATOR}1"


class Augmented(Dataset[torch.Tensor]):
    """A dataset whose items depend on the global stream."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return index + torch.rand(1)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(SIZE)


class Forgetful(Dataset[int]):
    """A dataset whose items depend on how often it was read."""

    asked = 0

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        self.asked += 1
        return self.asked


def distributed() -> Any:
    data = Augmented()
    return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, num_replicas=2, rank=1, seed=4))


def shuffled() -> Any:
    data = Augmented()
    return DataLoader(data, batch_size=3, sampler=RandomSampler(data, generator=torch.Generator().manual_seed(7)))


def with_global_shuffle() -> Any:
    return DataLoader(Augmented(), batch_size=3, shuffle=True)


def streamed() -> Any:
    return DataLoader(Stream(), batch_size=3)


def stateful() -> Any:
    return StatefulDataLoader(list(range(SIZE)), batch_size=3, shuffle=True)


def plain_list() -> Any:
    return [torch.tensor(number) for number in range(SIZE)]


LOADERS = (distributed, shuffled, with_global_shuffle, streamed, stateful, plain_list)


class Worker:
    def __init__(self, loader: Any, repeat: bool = True) -> None:
        torch.manual_seed(1)
        self.randomness = Randomness()
        self.iterator = LoaderIterator(NAME, LoaderSource(loader, repeat, self.randomness), self.randomness, lambda text: None)
        self.randomness.iterators[NAME] = self.iterator

    def draw(self, count: int) -> list[Any]:
        """With what the training draws in between."""
        return [(next(self.iterator), torch.rand(1)) for _ in range(count)]


def same(one: list[Any], other: list[Any]) -> bool:
    return repr(one) == repr(other) and len(one) > 0


@pytest.mark.parametrize("drawn", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("loader", LOADERS)
def test_another_worker_goes_on(loader: Any, drawn: int) -> None:
    lost = Worker(loader())
    lost.draw(drawn)
    streams = lost.randomness.capture()
    wanted = lost.draw(6)
    newcomer = Worker(loader())
    newcomer.draw(min(drawn, 1))  # its set-up
    newcomer.randomness.restore(streams)
    assert same(newcomer.draw(6), wanted)
    assert newcomer.randomness.capture() == lost.randomness.capture()


@pytest.mark.parametrize("loader", LOADERS)
def test_a_redo_draws_the_same(loader: Any) -> None:
    worker = Worker(loader())
    worker.draw(3)
    begin = worker.randomness.capture()
    first = worker.draw(3)
    after = worker.randomness.capture()
    for _ in range(2):
        worker.randomness.restore(begin)
        assert same(worker.draw(3), first)
        assert worker.randomness.capture() == after


def test_setting_a_position_draws_nothing() -> None:
    worker = Worker(distributed())
    worker.draw(2)
    there = worker.randomness.capture()
    worker.draw(1)
    now = worker.randomness.random()
    worker.randomness.restore({NAME: there[NAME]})
    assert worker.randomness.random() == now


def test_a_loader_that_does_not_give_the_same_twice_is_found_out() -> None:
    lost, newcomer = Worker(DataLoader(Forgetful())), Worker(DataLoader(Forgetful()))
    lost.draw(4)
    newcomer.randomness.restore(lost.randomness.capture())
    with refused(UsageError, loading.OTHER_DRAW, iterator="iterator 1", draw=3):
        newcomer.draw(1)


def test_it_ends_with_its_loader_and_another_worker_does_so_too() -> None:
    lost, newcomer = Worker(distributed(), repeat=False), Worker(distributed(), repeat=False)
    assert len(list(lost.iterator)) == 3
    newcomer.randomness.restore(lost.randomness.capture())
    assert list(newcomer.iterator) == []


def test_repeating_it_sets_the_epoch_of_its_sampler() -> None:
    worker = Worker(distributed())
    worker.draw(4)
    sampler: Any = worker.iterator._source._loader.sampler
    assert sampler.epoch == 1


def test_its_position_does_not_grow() -> None:
    """The start of an epoch does not include the positions of iterators at that time."""
    worker = Worker(with_global_shuffle())
    worker.draw(6)
    size = len(worker.iterator.read())
    worker.draw(48)  # twelve epochs
    assert abs(len(worker.iterator.read()) - size) < 100

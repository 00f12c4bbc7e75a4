"""A loader that draws from a random stream is reported only if the training draws from the same one in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.message_texts import arguments_of, codes

from understudy.messages import loading
from understudy.worker.data.loaders import LoaderSource
from understudy.worker.data.loops import Loops
from understudy.worker.data.shared_streams import LOOKS
from understudy.worker.state.streams import Randomness

OWN = random.Random(3)
Draw = Callable[[], object]


def nothing() -> None:
    pass


def from_torch() -> object:
    return torch.rand(1)


class Source:
    """Give batches without end. `draw` comes ahead of each."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[int]:
        for number in range(100):
            self._draw()
            yield number


def reported(loader: Draw, training: Draw, batches: int = 6) -> list[str]:
    """Return the warnings about a loop in which the loader and the training draw so."""
    said: list[str] = []
    randomness = Randomness()
    randomness.find("stream (__main__)", OWN)
    loops = Loops(randomness, said.append)
    source = LoaderSource(Source(loader), True, randomness)
    for iteration in range(batches):
        loops.top(source, iteration)
        loops.draw(source)
        training()
    return said


@pytest.mark.parametrize(
    ("loader", "training"),
    [(nothing, from_torch), (from_torch, nothing), (random.random, from_torch), (OWN.random, from_torch)],
)
def test_a_stream_of_one_of_them_is_not_reported(loader: Draw, training: Draw) -> None:
    assert not reported(loader, training)


@pytest.mark.parametrize(("both", "name"), [(from_torch, "torch"), (random.random, "python"), (OWN.random, "stream (__main__)")])
def test_a_stream_of_both_is_reported_once(both: Draw, name: str) -> None:
    said = reported(both, both)
    assert codes(said) == [loading.SHARED_STREAMS.code]
    assert name in str(arguments_of(said[0])["streams"])


def test_a_loader_that_draws_is_looked_at_for_as_long_as_it_does() -> None:
    numbers = iter(range(100))
    assert reported(from_torch, lambda: next(numbers) > 3 * LOOKS and torch.rand(1), 4 * LOOKS)

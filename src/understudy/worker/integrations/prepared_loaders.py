"""Loaders that `Accelerator.prepare` has returned.

Such a loader is no `DataLoader`, whatever its `__class__` is: it has one, and its iterator is a generator that is one batch ahead, to
know the last one. So the batch that an iteration gets was drawn in the iteration before, with the random streams of that time. They are
part of the position. A newcomer advances the sampler alone, as for a plain DataLoader, draws that one batch with those streams, and goes
on. With worker processes, or an iterable dataset, it draws the epoch again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import IterableDataset

from understudy.worker.data.loaders import LoaderSource
from understudy.worker.data.manual_iterators import by_a_loop
from understudy.worker.encoding.messages import DataPosition, Streams
from understudy.worker.state.streams import Randomness


class PreparedSource(LoaderSource):
    """The source of a loop over a prepared loader. Its epochs are those that the loader counts."""

    def __init__(self, loader: Any, repeat: bool, randomness: Randomness) -> None:
        super().__init__(loader, repeat, randomness)
        self._stateful = False  # its state is that of the loader inside, which is ahead
        self._epoch = loader.iteration
        self._ahead: _Ahead | None = None
        self._skipped: DataPosition | None = None  # to which the iterator goes when it is made

    def _generators(self) -> list[torch.Generator]:
        samplers = [part for part in self._samplers() if not hasattr(part, "initial_seed")]  # not one that seeds itself at each `iter`
        inner = [self._loader.synchronized_generator, *(getattr(part, "generator", None) for part in samplers)]
        return list({id(one): one for one in inner if isinstance(one, torch.Generator)}.values())

    def _samplers(self) -> list[Any]:
        found, outer = [self._loader.sampler], self._loader.batch_sampler
        while outer is not None and not any(outer is part for part in found):
            found += [outer, getattr(outer, "sampler", None)]
            outer = getattr(outer, "batch_sampler", None)
        return [part for part in found if part is not None]

    @property
    def draws_again(self) -> bool:
        return isinstance(self._loader.dataset, IterableDataset) and self._loader.num_workers == 0

    def position(self) -> DataPosition:
        found = super().position()
        return replace(found, ahead=self._ahead.streams) if self._index and self._ahead is not None else found

    def go_again(self, position: DataPosition) -> bool:
        return False

    def run_through(self) -> None:
        self._loader.iteration += 1

    def _run_samplers(self, epochs: int) -> None:
        pass

    def _to_start(self, position: DataPosition) -> None:
        super()._to_start(position)
        self._loader.iteration = position.epoch

    def _set_epoch(self) -> None:
        self._loader.iteration = self._epoch  # which sets it for its samplers when it is iterated over

    def _draw_again(self, position: DataPosition) -> None:
        self._open()
        self._start, self._start_generators, self._skipped = position.start, position.generators, position

    def _next(self) -> Any:
        if self._ahead is not None:
            return super()._next()
        base = self._loader.base_dataloader
        self._loader.base_dataloader = _Inside(base, self._made)  # whose iterator the generator makes when its first batch is asked for
        try:
            return super()._next()
        finally:
            self._loader.base_dataloader = base

    def _open(self) -> None:
        super()._open()
        self._ahead = self._skipped = None

    def _made(self, base: Any) -> Iterator[Any]:
        position, randomness = self._skipped, self._randomness
        now = randomness.random()
        if position is not None:
            randomness.restore(position.start)
        with by_a_loop():
            inner: Any = type(base).__iter__(base)
        if position is not None:
            if base.num_workers == 0 and not isinstance(base.dataset, IterableDataset):
                for _ in range(position.index):
                    next(inner._sampler_iter)
                inner._num_yielded += position.index
            else:
                for _ in range(position.index):
                    next(inner)
            randomness.restore(now)
        self._ahead = _Ahead(inner, randomness.random, self._first(position))
        return self._ahead

    def _first(self, position: DataPosition | None) -> Callable[[Iterator[Any]], Any]:
        """Return the function that draws the first batch: after a skip with the streams of the iteration that drew it."""
        if position is None:
            return next

        def draw(inner: Iterator[Any]) -> Any:
            now = self._randomness.random()
            self._randomness.restore(position.ahead)
            try:
                return next(inner)
            finally:
                self._randomness.restore(now)

        return draw


class _Inside:
    """The DataLoader inside of a prepared one, with another way to make its iterator."""

    def __init__(self, base: Any, make: Callable[[Any], Iterator[Any]]) -> None:
        self._base, self._make = base, make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def __iter__(self) -> Iterator[Any]:
        return self._make(self._base)


class _Ahead(Iterator[Any]):
    """An iterator that notes the random streams before each draw."""

    def __init__(self, inner: Iterator[Any], random: Callable[[], Streams], first: Callable[[Iterator[Any]], Any]) -> None:
        self._inner, self._random, self._draw = inner, random, first
        self.streams: Streams = {}

    def __next__(self) -> Any:
        self.streams = self._random()
        draw, self._draw = self._draw, next
        return draw(self._inner)

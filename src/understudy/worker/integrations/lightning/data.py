"""The batches of `Trainer.fit`: the data fetcher of the fit loop, led by the job (`job.lead`).

A position is the epoch, how many of its batches were drawn, and the random streams with which it was opened, and with which its first
batch was drawn: a sampler may draw its order only then. The loader of each epoch but the first is opened by its first draw, and not
before, as Lightning does: so the opening belongs to an iteration, and a newcomer repeats it. In between nothing draws.

A newcomer opens the epoch with these streams, and advances the sampler alone if there is one loader over a map-style dataset without
worker processes. Otherwise it draws the epoch again up to its position.

Known limits: with a stream of unknown length, a batch is drawn one iteration ahead; if it depends on the random streams, a newcomer draws
another one, which is found and ends the job. Two loaders of different lengths, of which one shuffles without a DistributedSampler, the
same. An epoch that is left before its end, and followed by another one, is refused, because a newcomer could not know that it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from understudy.messages import integrations
from understudy.worker.data.manual_iterators import by_a_loop
from understudy.worker.errors import UsageError
from understudy.worker.state.streams import Randomness

Item = tuple[Any, int, int]  # a batch, its number, and that of its loader


class DrawnFetcher:
    """A fetcher that returns one batch, which was drawn before."""

    def __init__(self, item: Item, done: bool) -> None:
        self._item, self.done = item, done

    def __next__(self) -> Item:
        return self._item


class TrainingData:
    """The data fetcher of a fit loop."""

    def __init__(self, fit_loop: Any, set_epoch: Callable[[Any, int], None], randomness: Randomness) -> None:
        """`set_epoch`: Lightning's function that sets the epoch of a loader's samplers."""
        self._fit_loop, self._set_sampler_epoch, self._randomness = fit_loop, set_epoch, randomness
        self._epoch = 0
        self._drawn = 0
        self._start = self._first = randomness.random()
        self._opens_now = False
        self.running = False

    @property
    def _fetcher(self) -> Any:
        return self._fit_loop._data_fetcher

    @property
    def at_end(self) -> bool:
        """Return whether the last batch of an epoch is drawn."""
        return bool(self._fetcher.done)

    def begin(self) -> None:
        """Begin to train. The first epoch is open."""
        self._epoch, self._drawn, self.running = self._fit_loop.epoch_progress.current.processed, 0, True
        for loader in self._fit_loop._combined_loader.flattened:
            batches = getattr(loader, "batch_sampler", None)
            owners = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
            generators = (getattr(owner, "generator", None) for owner in owners)
            self._randomness.adopt([one for one in generators if isinstance(one, torch.Generator)])

    def opened(self, stock: Callable[[Any], Any], fetcher: Any) -> Any:
        """Stand in for `_PrefetchDataFetcher.__iter__`. Raises `UsageError` for an epoch that follows one that was left."""
        if fetcher is not self._fetcher:
            with by_a_loop():
                return stock(fetcher)
        if self.running and not self._opens_now:
            if not fetcher.done and self._drawn:
                raise UsageError(integrations.EPOCH_LEFT())
            fetcher.done = True  # the next draw opens it
            return fetcher
        self._start = self._randomness.random()
        with by_a_loop():
            return stock(fetcher)

    def draw(self) -> Item | None:
        """Return the next batch, of the next epoch if this one is over. None: the loader has ended earlier than its length says."""
        if self._fetcher.done:
            self._open(self._epoch + 1)
        if not self._drawn:
            self._first = self._randomness.random()
        with by_a_loop():
            try:
                item: Item = next(self._fetcher)
            except StopIteration:
                return None
        self._drawn += 1
        return item

    def position(self) -> dict[str, Any]:
        fetcher = self._fetcher
        place = {"epoch": self._epoch, "drawn": self._drawn, "fetched": fetcher.fetched, "done": fetcher.done}
        return {**place, "start": self._start, "first": self._first}

    def go_to(self, position: dict[str, Any]) -> None:
        self._epoch, fetcher = position["epoch"], self._fetcher
        if position["done"]:
            fetcher.done = True  # the next draw opens the epoch after it
            return
        self._randomness.restore(position["start"])
        self._open(self._epoch)
        self._start, self._first = position["start"], position["first"]
        if position["drawn"]:
            self._randomness.restore(self._first)
            self._skip(position["drawn"])
        fetcher.fetched = position["fetched"]
        self._drawn = position["drawn"]

    def _open(self, epoch: int) -> None:
        self._epoch, self._drawn = epoch, 0
        for loader in self._fit_loop._combined_loader.flattened:
            self._set_sampler_epoch(loader, epoch)
        self._opens_now = True
        try:
            iter(self._fetcher)
        finally:
            self._opens_now = False

    def _skip(self, count: int) -> None:
        """Leave out batches of this epoch."""
        fetcher, loaders = self._fetcher, self._fit_loop._combined_loader
        inner = loaders._iterator.iterators
        single = inner[0] if len(inner) == 1 and fetcher.length is not None else None
        if type(single) is _SingleProcessDataLoaderIter and single._dataset_kind == _DatasetKind.Map:
            for _ in range(count):
                next(single._sampler_iter)
            single._num_yielded += count
            loaders._iterator._idx += count
            return
        with by_a_loop():
            for _ in range(count):
                next(fetcher)

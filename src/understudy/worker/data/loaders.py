"""The sources of a loop's batches, and how a newcomer gets to the same place in them.

A position is taken at the top of an iteration, before its batch is drawn: the epoch, how many batches of it were drawn, and what the
epoch began with (random streams, generators; for a StatefulDataLoader its own state). A newcomer goes to the position of the last
iteration that its lost rank handed over, draws that batch again, and compares its digest with the lost rank's before anything else is
drawn.

A plain DataLoader without workers gets there by advancing its sampler alone. With worker processes, or an iterable dataset, the epoch's
batches are drawn again, because the state of the workers depends on them; a StatefulDataLoader is faster there. Its state does not
include the random streams of its workers, though: if it gives another batch, its epoch is drawn again too.

A sampler of the script's own may count its draws. It alone is run through epochs and loops that are over, the first one to see whether
that changes it: without its data, but a slow sampler makes a newcomer slow. If a loop was left in its middle, what it had drawn is
known for the last one only; a count that is wrong for that is found by the batch that is drawn again.
"""

from __future__ import annotations

import os
import random
import re
import sys
import weakref
from collections.abc import Callable, Sized
from typing import Any, Protocol

import numpy
import torch
from torch.utils.data import DataLoader, IterableDataset

from understudy.messages import loading
from understudy.worker.data.manual_iterators import by_a_loop
from understudy.worker.encoding.messages import DataPosition, Streams
from understudy.worker.state.streams import Randomness

_PROCESS_KILLED = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly$)")


def leave_if_data_process_lost(error: BaseException) -> None:
    """End this worker if `error`, or its cause, reports that a process of a DataLoader was killed.

    A process of this rank was killed from outside: that is a loss of the rank, not a fault of the script. Torch raises this error from
    a signal handler, so it may be raised at any line of the main thread.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RuntimeError) and _PROCESS_KILLED.match(str(cause)):
            print(f"understudy: {loading.DATA_PROCESS_LOST(error=str(cause))}", file=sys.stderr, flush=True)
            os._exit(70)
        cause = cause.__cause__ or cause.__context__


_UNCHANGED: weakref.WeakSet[Any] = weakref.WeakSet()  # loaders whose samplers were seen to keep no count
_RANDOM = (torch.Generator, numpy.random.Generator, numpy.random.RandomState, random.Random)


def _marks(sampler: Any) -> dict[str, Any]:
    """Return, by attribute, values that change if the sampler counts, without reading data."""
    found: dict[str, Any] = {}
    for name, value in getattr(sampler, "__dict__", {}).items():
        if isinstance(value, bool | int | float | str | None):
            found[name] = value
        else:
            found[name] = object() if isinstance(value, _RANDOM) else (id(value), len(value) if isinstance(value, Sized) else 0)
    return found


class Source(Protocol):
    def position(self) -> DataPosition: ...

    def go_to(self, position: DataPosition) -> None: ...

    def go_again(self, position: DataPosition) -> bool:
        """Go to `position` once more, by a slower and surer way if there is one; return `False` if it cannot."""
        ...

    def pass_by(self, position: DataPosition) -> None:
        """Advance the source like a loop that ended with an iteration from `position`."""
        ...

    def run_through(self) -> None:
        """Advance the source like a loop that has drawn everything, and whose positions are not known any more."""
        ...

    @property
    def index(self) -> int:
        """Return how many batches of this epoch are drawn."""
        ...

    @property
    def parts(self) -> list[Any]:
        """Return the parts that may keep a count of their own."""
        ...

    def draw(self, new_epoch: Callable[[], None]) -> Any:
        """Return the next batch. Raises `StopIteration` at the end. Calls `new_epoch` when it starts over, before it draws anything."""
        ...


class Counter:
    """The source of a loop without a loader: step numbers."""

    def __init__(self) -> None:
        self._next = 0

    def position(self) -> DataPosition:
        return DataPosition(self._next)

    def go_to(self, position: DataPosition) -> None:
        self._next = position.index

    def go_again(self, position: DataPosition) -> bool:
        return False

    def pass_by(self, position: DataPosition) -> None:
        pass

    def run_through(self) -> None:
        pass

    @property
    def index(self) -> int:
        return self._next

    @property
    def parts(self) -> list[Any]:
        return []

    def draw(self, new_epoch: Callable[[], None]) -> int:
        self._next += 1
        return self._next - 1


class LoaderSource:
    """A DataLoader, a StatefulDataLoader or any other iterable. `repeat`: start over at its end, as often as it takes."""

    def __init__(self, loader: Any, repeat: bool, randomness: Randomness) -> None:
        self._loader = loader
        self._repeat = repeat
        self._randomness = randomness
        self._stateful = callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None))
        self._iterator: Any = None
        self.goes_on = False  # whether its worker processes have gone from one epoch to another, with their random draws
        self._epoch = 0
        self._index = 0
        self._start: Streams = {}
        self._start_generators: list[bytes] = []
        randomness.adopt(self._generators())

    def _generators(self) -> list[torch.Generator]:
        batch_sampler = getattr(self._loader, "batch_sampler", None)
        owners = (self._loader, getattr(self._loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
        found = {id(g): g for g in (getattr(owner, "generator", None) for owner in owners) if isinstance(g, torch.Generator)}
        return list(found.values())

    @property
    def draws_again(self) -> bool:
        """Return whether a newcomer runs the loader's own code from the start of the epoch, in its main process."""
        workers = getattr(self._loader, "num_workers", 0)
        mapped = isinstance(self._loader, DataLoader) and not isinstance(self._loader.dataset, IterableDataset)
        return not mapped and not self._stateful and workers == 0

    @property
    def index(self) -> int:
        """Return how many batches of this epoch are drawn."""
        return self._index

    def position(self) -> DataPosition:
        if not self._index:
            return DataPosition(0, self._epoch, generators=self._generator_states())
        state = self._loader.state_dict() if self._stateful else None
        return DataPosition(self._index, self._epoch, self._start, self._start_generators, state)

    def _generator_states(self) -> list[bytes]:
        return [bytes(generator.get_state().numpy().tobytes()) for generator in self._generators()]

    def go_to(self, position: DataPosition) -> None:
        self._run_samplers(position.epoch)
        self._to_start(position)
        if not self._index:
            return  # opened by the next draw
        if self._stateful:
            self._loader.load_state_dict(position.state)
            self._open()
            self._start, self._start_generators = position.start, position.generators
        else:
            self._draw_again(position)

    def go_again(self, position: DataPosition) -> bool:
        if not (position.index if self._stateful else isinstance(self._loader, DataLoader) and not self.draws_again):
            return False
        self._to_start(position)
        if position.index:
            self._draw_again(position)
        return True

    def pass_by(self, position: DataPosition) -> None:
        self._epoch = position.epoch
        self._set_epoch()

    def run_through(self) -> None:
        self._run_samplers(1)

    def _run_samplers(self, epochs: int) -> None:
        own = [part for part in self._samplers() if type(part).__module__.partition(".")[0] not in ("torch", "torchdata")]
        plain = isinstance(self._loader, DataLoader) and not isinstance(self._loader.dataset, IterableDataset) and not self._stateful
        if not own or not plain or self._loader in _UNCHANGED:
            return
        for self._epoch in range(epochs):
            self._set_epoch()
            before = [_marks(part) for part in own]
            for _ in self._loader._index_sampler:
                pass
            if before == [_marks(part) for part in own]:
                _UNCHANGED.add(self._loader)
                return

    @property
    def parts(self) -> list[Any]:
        found = [self._loader, getattr(self._loader, "dataset", None), *self._samplers()]
        return [part for part in found if part is not None]

    def _samplers(self) -> list[Any]:
        batches = getattr(self._loader, "batch_sampler", None)
        found = (getattr(self._loader, "sampler", None), batches, getattr(batches, "sampler", None))
        return [part for part in found if part is not None]

    def _to_start(self, position: DataPosition) -> None:
        self._epoch, self._index = position.epoch, position.index
        self._iterator = None
        for generator, state in zip(self._generators(), position.generators, strict=False):
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    def _draw_again(self, position: DataPosition) -> None:
        self._randomness.restore(position.start)
        self._open()
        iterator: Any = self._iterator
        light = isinstance(self._loader, DataLoader) and self._loader.num_workers == 0 and not self._stateful
        if light and not isinstance(self._loader.dataset, IterableDataset):
            for _ in range(self._index):
                next(iterator._sampler_iter)
            iterator._num_yielded += self._index
        else:
            for _ in range(self._index):
                self._next()

    def _open(self) -> None:
        if (
            getattr(self._loader, "_iterator", None) is not None
            and getattr(self._loader, "persistent_workers", False)
            and not self._stateful
        ):
            self.goes_on = True
        self._set_epoch()
        self._start = self._randomness.random()
        self._start_generators = self._generator_states()
        with by_a_loop():
            self._iterator = iter(self._loader)

    def _set_epoch(self) -> None:
        if self._repeat:
            for sampler in (getattr(self._loader, "sampler", None), getattr(self._loader, "batch_sampler", None)):
                if sampler is not None and callable(getattr(sampler, "set_epoch", None)):
                    sampler.set_epoch(self._epoch)

    def draw(self, new_epoch: Callable[[], None]) -> Any:
        if self._iterator is None:
            self._open()
        try:
            batch = self._next()
        except StopIteration:
            if not self._repeat or self._index == 0:
                raise
            self._epoch, self._index, self._iterator = self._epoch + 1, 0, None
            new_epoch()
            self._open()
            batch = self._next()
        self._index += 1
        return batch

    def _next(self) -> Any:
        with by_a_loop():  # a generator of the script's may make iterators of loaders
            return next(self._iterator)

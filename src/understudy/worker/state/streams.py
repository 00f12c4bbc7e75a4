"""The random number streams of a process: torch (CPU and CUDA), numpy's global one, Python's, and generators that are registered, or that
were found in the script (`census`). The position of each iterator of the job (`data.iterators`) is a stream, too.
"""

from __future__ import annotations

import operator
import random
import sys
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy
import torch

from understudy.worker.encoding.messages import Streams
from understudy.worker.state.rng_fingerprint import Mark, Marks, marks_of_numpy, marks_of_python, marks_of_torch, no_mark


def _generator_bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()


def _state_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def cuda_in_use() -> bool:
    """Return whether this process has started CUDA."""
    return bool(torch.cuda.is_initialized()) and torch.cuda.is_available()  # type: ignore[no-untyped-call]


def _python_bytes() -> bytes:
    version, words, gauss = random.getstate()
    return array("I", words).tobytes() + repr((version, gauss)).encode()


def _numpy_bytes() -> bytes:
    state: Any = numpy.random.get_state()
    kind, key, position, has_gauss, gauss = state
    return bytes(key.tobytes()) + repr((kind, int(position), int(has_gauss), float(gauss))).encode()


def _torch_bytes(generator: torch.Generator) -> bytes:
    return _generator_bytes(generator.get_state())


def _cuda_bytes() -> bytes:
    return _generator_bytes(torch.cuda.get_rng_state())


def _numpy_generator_bytes(generator: numpy.random.Generator) -> bytes:
    from understudy.worker.encoding.codec import encode

    return encode(generator.bit_generator.state)


def _older_bytes(generator: random.Random | numpy.random.RandomState) -> bytes:
    from understudy.worker.encoding.codec import encode

    return encode(generator.getstate() if isinstance(generator, random.Random) else generator.get_state(legacy=False))


FOUND = "in the script: "  # before the names of those that are not registered
_TORCH, _NUMPY, _OLDER = "generator/", "numpy generator/", "older generator/"  # before the names of all three kinds
ITERATOR = "iterator "  # before the numbers of iterators


def plain_name(stream: str) -> str:
    """Return the name of a stream for a person."""
    return f"the random stream {stream.rpartition('/')[2].removeprefix(FOUND)!r}"


class Position(Protocol):
    """The position of something that is drawn from."""

    def read(self) -> bytes: ...

    def restore(self, at: bytes) -> None: ...


class _Source(NamedTuple):
    read: Callable[[], bytes]
    mark: Marks


class Randomness:
    """Reads and sets all streams at once. `generators`: further `torch.Generator` objects, by name."""

    def __init__(self) -> None:
        self.generators: dict[str, torch.Generator] = {}
        self.numpy_generators: dict[str, numpy.random.Generator] = {}
        self.python_generators: dict[str, random.Random | numpy.random.RandomState] = {}  # found, and numpy's older kind
        self.iterators: dict[str, Position] = {}
        self._as_found: Streams = {}
        self._there: tuple[object, ...] = ()  # the streams that exist
        self._sources: dict[str, _Source] = {}
        self._looks: list[Marks] = []  # of each source
        self._marks: list[Mark | None] = []  # of `_last`
        self._last: Streams = {}
        self._moment: Streams | None = None  # the last capture, while nothing draws
        self._still = False

    def adopt(self, generators: list[torch.Generator]) -> None:
        """Add the generators that are not known yet: those of a loader, which draw the order of every epoch from where the one before left
        them.
        """
        for generator in generators:
            if not any(known is generator for known in self.generators.values()):
                self.generators[f"of a loader {len(self.generators)}"] = generator

    def find(self, name: str, generator: Any) -> None:
        """Add an unregistered generator, if it is not known yet."""
        if any(known is generator for known in self.all_generators()):
            return
        name = f"{FOUND}{name}"
        if isinstance(generator, torch.Generator):
            self.generators[name] = generator
            self._as_found[f"{_TORCH}{name}"] = _torch_bytes(generator)
        elif isinstance(generator, numpy.random.Generator):
            self.numpy_generators[name] = generator
            self._as_found[f"{_NUMPY}{name}"] = _numpy_generator_bytes(generator)
        else:
            self.python_generators[name] = generator
            self._as_found[f"{_OLDER}{name}"] = _older_bytes(generator)

    def unused(self, streams: Streams) -> list[str]:
        """Return those of `streams`, by name, that are not registered and were not drawn from since the set-up."""
        return [name for name, data in self._as_found.items() if streams.get(name) == data]

    def lacks(self, name: str) -> bool:
        """Return whether another worker has found this stream in its script, and there is none here."""
        return FOUND in name and name.partition("/")[2] not in {*self.generators, *self.numpy_generators, *self.python_generators}

    def all_generators(self) -> list[Any]:
        return [*self.generators.values(), *self.numpy_generators.values(), *self.python_generators.values()]

    def names(self) -> list[str]:
        """Return the names of all streams of the script: registered, of a loader, and found (`FOUND`)."""
        return sorted((*self.generators, *self.numpy_generators, *self.python_generators))

    def still(self) -> AbstractContextManager[None]:
        """Mark code in which nothing draws: several captures in it are one. Setting streams is noticed."""
        return _Stillness(self)

    def capture(self) -> Streams:
        """Return all streams by name. The same object as the last time if nothing has moved; it must not be changed."""
        if self._moment is not None:
            return self._moment
        numpys, cuda = "numpy.random" in sys.modules, cuda_in_use()
        there = numpys, cuda, *self.generators, *self.numpy_generators, *self.python_generators, *self.iterators
        if there != self._there:
            self._there, self._sources = there, self._find_sources(numpys, cuda)
            self._looks = [source.mark for source in self._sources.values()]
            self._last, self._marks = {}, [None] * len(self._sources)
        marks = [mark() for mark in self._looks]
        if marks != self._marks or None in marks:
            self._read(marks)
        self._moment = self._last if self._still else None
        return self._last

    def random(self) -> Streams:
        """Return all streams by name, without the positions of iterators."""
        now = self.capture()
        return {name: data for name, data in now.items() if name not in self.iterators} if self.iterators else now

    def _read(self, marks: list[Mark | None]) -> None:
        """Read those streams whose marks have changed, or that have none."""
        found = {}
        for number, (name, source) in enumerate(self._sources.items()):
            mark, last = marks[number], self._last.get(name)
            if last is None or mark is None or mark != self._marks[number]:
                value = source.read()
                marks[number] = mark if mark == source.mark() else None  # another thread may have drawn meanwhile
                last = last if value == last else value
            found[name] = last
        if self._last.keys() != found.keys() or not all(map(operator.is_, found.values(), self._last.values())):
            self._last = found
        self._marks = marks

    def _find_sources(self, numpys: bool, cuda: bool) -> dict[str, _Source]:
        default = torch.default_generator
        sources = {
            "torch": _Source(partial(_torch_bytes, default), marks_of_torch(default)),
            "python": _Source(_python_bytes, marks_of_python()),
        }
        if numpys:
            sources["numpy"] = _Source(_numpy_bytes, marks_of_numpy())
        if cuda:
            sources["cuda"] = _Source(_cuda_bytes, no_mark)
        for name, generator in self.generators.items():
            sources[f"{_TORCH}{name}"] = _Source(partial(_torch_bytes, generator), marks_of_torch(generator))
        for name, numpy_generator in self.numpy_generators.items():
            sources[f"{_NUMPY}{name}"] = _Source(partial(_numpy_generator_bytes, numpy_generator), no_mark)
        for name, older in self.python_generators.items():
            sources[f"{_OLDER}{name}"] = _Source(partial(_older_bytes, older), no_mark)
        for name, iterator in self.iterators.items():
            sources[name] = _Source(iterator.read, no_mark)
        return sources

    def restore(self, streams: Streams) -> None:
        """Set every stream that `streams` names. Raises `KeyError` for a generator that is not registered here."""
        import ast

        self._moment = None
        for name, data in streams.items():
            if name == "torch":
                torch.set_rng_state(_state_tensor(data))
            elif name == "python":
                version, gauss = ast.literal_eval(data[2500:].decode())
                random.setstate((version, tuple(array("I", data[:2500])), gauss))
            elif name == "numpy":
                kind, pos, has_gauss, gauss_value = ast.literal_eval(data[2496:].decode())
                key = numpy.frombuffer(data[:2496], dtype=numpy.uint32)
                numpy.random.set_state((kind, key, pos, has_gauss, gauss_value))
            elif name == "cuda":
                torch.cuda.set_rng_state(_state_tensor(data))
            elif self.lacks(name):
                continue  # it is not registered, and does not exist here
            elif name.startswith(ITERATOR):
                self.iterators[name].restore(data)
            elif name.startswith(_TORCH):
                self.generators[name.removeprefix(_TORCH)].set_state(_state_tensor(data))
            elif name.startswith(_OLDER):
                from understudy.worker.encoding.codec import decode

                older = self.python_generators[name.removeprefix(_OLDER)]
                older.setstate(decode(data)) if isinstance(older, random.Random) else older.set_state(decode(data))
            else:
                from understudy.worker.encoding.codec import decode

                self.numpy_generators[name.removeprefix(_NUMPY)].bit_generator.state = decode(data)


class _Stillness(AbstractContextManager[None]):
    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def __enter__(self) -> None:
        self._randomness._still = True

    def __exit__(self, *exception: object) -> None:
        self._randomness._still, self._randomness._moment = False, None

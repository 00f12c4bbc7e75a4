"""Whether a generator has moved since it was read, seen in the memory of its object.

By their own methods the states of Python's and numpy's generators take tens of microseconds to read, and behind a long computation that of
torch's too; that in every step several times, and most scripts never draw from most of them while they train. All three objects hold
their state in themselves (numpy's its Mersenne Twister at an address that it tells), so the same bytes are the same state. That this
holds for the present interpreter, numpy and torch is tried out first, on objects of our own; where it does not, states are always read.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import numpy
import torch

_HEAD = object.__basicsize__  # bytes of an object in front of what is its own
_TWISTER = 625 * 4  # bytes: 624 words and the position
_WORDS = 624  # of torch's Mersenne Twister
_BEFORE, _BEHIND = 24, 24  # bytes around them in torch's object: seed and position; normal numbers kept for the next call

Mark = tuple[Any, ...]
Value = TypeVar("Value")


class Unmoved(Generic[Value]):
    """What `read` gives, read again only when `mark` is another one, or None. The same object as long as it is equal."""

    def __init__(self, read: Callable[[], Value], mark: Callable[[], Mark | None]) -> None:
        self._read, self._mark = read, mark
        self._known: tuple[Mark | None, Value] | None = None

    def get(self) -> Value:
        mark = self._mark()
        if self._known is not None and mark is not None and self._known[0] == mark:
            return self._known[1]
        value = self._read()
        if self._known is not None and self._known[1] == value:
            value = self._known[1]
        self._known = mark if mark == self._mark() else None, value  # another thread may have drawn meanwhile
        return value


def mark_of_python() -> Mark | None:
    """Of the generator behind the functions of `random`."""
    return _python(random._inst) if _python_tells() else None


def mark_of_numpy() -> Mark | None:
    """Of the generator behind the functions of `numpy.random`."""
    return _numpy(numpy.random.mtrand._rand) if _numpy_tells() else None


def mark_of_torch(generator: torch.Generator) -> Mark | None:
    """Of a generator on the host."""
    start = _torch_tells()
    return _torch(generator, start) if start is not None and generator.device.type == "cpu" else None


@functools.lru_cache  # which keeps the object, and so the address its own
def _memory(thing: object) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * (type(thing).__basicsize__ - _HEAD)).from_address(id(thing) + _HEAD)


@functools.lru_cache
def _twister(bits: Any) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * _TWISTER).from_address(bits.ctypes.state_address)


def _python(generator: random.Random) -> Mark:
    return _memory(generator).raw, generator.gauss_next  # type: ignore[attr-defined]


def _numpy(generator: Any) -> Mark | None:
    bits = generator._bit_generator
    if type(bits) is not numpy.random.MT19937:
        return None
    return _memory(generator).raw, _twister(bits).raw


def _torch(generator: torch.Generator, start: int) -> Mark:
    return (ctypes.string_at(generator._cdata + start - _BEFORE, _BEFORE + 4 * _WORDS + _BEHIND),)  # type: ignore[attr-defined]


def _words_of_torch(generator: torch.Generator) -> int | None:
    """Where in a generator's object its Mersenne Twister has its words; None: not where it is looked for."""
    state = generator.get_state().numpy()
    if state.nbytes < 8 * (3 + _WORDS):
        return None
    words = state[24 : 8 * (3 + _WORDS)].view("u8").astype("u4").tobytes()
    there = generator._cdata  # type: ignore[attr-defined]
    found = [start for start in range(_BEFORE, 256, 4) if ctypes.string_at(there + start, 64) == words[:64]]
    return found[0] if len(found) == 1 and ctypes.string_at(there + found[0], len(words)) == words else None


@functools.cache
def _torch_tells() -> int | None:
    """Where the words are, if every move is seen around there."""
    own = torch.Generator()
    own.manual_seed(1)

    def normal(kind: torch.dtype) -> None:
        torch.empty(1, dtype=kind).normal_(generator=own)

    start = _words_of_torch(own)
    moves: list[Callable[[], object]] = [lambda: torch.rand(1, generator=own), lambda: own.manual_seed(2)]
    moves += [partial(normal, kind) for kind in (torch.float64, torch.float32) for _ in range(2)]  # the second takes what is kept
    return start if start is not None and _tells(lambda: _torch(own, start), *moves) else None


@functools.cache
def _python_tells() -> bool:
    own = random.Random(1)
    return _tells(lambda: _python(own), own.random, lambda: own.gauss(0, 1), lambda: own.gauss(0, 1), lambda: own.seed(2))


@functools.cache
def _numpy_tells() -> bool:
    own = numpy.random.RandomState(1)
    return _tells(lambda: _numpy(own), own.random, own.standard_normal, own.standard_normal, lambda: own.seed(2))


def _tells(mark: Callable[[], Mark | None], *moves: Callable[[], object]) -> bool:
    """Whether every move is seen."""
    if sys.implementation.name != "cpython":
        return False
    seen = [mark()]
    for move in moves:
        move()
        seen.append(mark())
    return None not in seen and len(set(seen)) == len(seen)

"""Whether Python's or numpy's own generator has moved since it was read, seen in the memory of its object.

By their own methods their states take tens of microseconds to read, in every step several times, and most scripts never draw
from them while they train. Both objects hold their state in themselves (numpy's its Mersenne Twister at an address that it tells), so the
same bytes are the same state. That this holds for the present interpreter and numpy is tried out first, on objects of our own; where
it does not, states are always read.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy

_HEAD = object.__basicsize__  # bytes of an object in front of what is its own
_TWISTER = 625 * 4  # bytes: 624 words and the position

Mark = tuple[Any, ...]
Value = TypeVar("Value")


class Unmoved(Generic[Value]):
    """What `read` gives, read again only when `mark` is another one, or None."""

    def __init__(self, read: Callable[[], Value], mark: Callable[[], Mark | None]) -> None:
        self._read, self._mark = read, mark
        self._known: tuple[Mark | None, Value] | None = None

    def get(self) -> Value:
        mark = self._mark()
        if self._known is not None and mark is not None and self._known[0] == mark:
            return self._known[1]
        value = self._read()
        self._known = (mark, value) if mark == self._mark() else None  # another thread may have drawn meanwhile
        return value


def mark_of_python() -> Mark | None:
    """Of the generator behind the functions of `random`."""
    return _python(random._inst) if _python_tells() else None


def mark_of_numpy() -> Mark | None:
    """Of the generator behind the functions of `numpy.random`."""
    return _numpy(numpy.random.mtrand._rand) if _numpy_tells() else None


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

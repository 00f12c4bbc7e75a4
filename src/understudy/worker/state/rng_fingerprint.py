"""Detects whether a generator has moved since it was read, by looking at the memory of its object.

Reading the states of Python's and numpy's generators by their own methods takes tens of microseconds, and after a long computation that
of torch's too. That is needed several times in every step, and most scripts never draw from most of them while they train. All three
have a Mersenne Twister (numpy reports its address): 624 words, a position (how many are used up), and a kept value of a pair of
normal numbers. All words change at once: when the last one is used up, and when a state is set. So the position, the kept value and the
first 16 words identify the state; the odds against other words following the same 16 are 2^512 to 1. Whether the present interpreter,
numpy and torch have this layout is tried first, on objects of our own; if not, states are always read.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import torch

_HEAD = object.__basicsize__  # bytes of an object before its own fields
_WORDS = 624
_FIRST = 16 * 4  # bytes of the first words
_BEFORE, _AFTER = 24, 24  # bytes around torch's words: seed and position; normal numbers kept for the next call

Mark = tuple[Any, ...]  # differs if the state differs
Marks = Callable[[], Mark | None]  # returns the present mark, None for a generator that does not show whether it moves


def marks_of_python() -> Marks:
    """Return the marks of the generator of Python's `random`, which is the same one as long as the process lives."""
    return _python(random._inst) if _python_tells() else no_mark


def marks_of_numpy() -> Marks:
    """Return the marks of the generator of `numpy.random`; None while that is no Mersenne Twister."""
    return _numpy(numpy.random.mtrand._rand) if _numpy_tells() else no_mark


def marks_of_torch(generator: torch.Generator) -> Marks:
    """Return the marks of a generator on the host; of any other one always None."""
    start = _torch_tells()
    return _torch(generator, start) if start is not None and generator.device.type == "cpu" else no_mark


def no_mark() -> None:
    """Return no mark: for a stream that is always read."""


def _view(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * size).from_address(address)


def _python(generator: random.Random) -> Marks:
    position = 4  # bytes, before the words
    first = _view(id(generator) + _HEAD, position + _FIRST)
    return lambda: (first.raw, generator.gauss_next)  # type: ignore[attr-defined]


def _numpy(generator: Any) -> Marks:
    own = _view(id(generator) + _HEAD, type(generator).__basicsize__ - _HEAD)
    known: Any = None
    words = 0
    first = rest = own

    def mark() -> Mark | None:
        nonlocal known, words, first, rest
        bits = generator._bit_generator
        if bits is not known:
            if type(bits) is not numpy.random.MT19937:
                return None
            known, words = bits, int(bits.ctypes.state_address)
            first, rest = _view(words, _FIRST), _view(words + 4 * _WORDS, 4)
        return own.raw, words, first.raw, rest.raw

    return mark


def _torch(generator: Any, start: int) -> Marks:
    known = 0
    first = rest = _view(id(generator), 0)

    def mark() -> Mark:
        nonlocal known, first, rest
        if generator._cdata != known:
            known = generator._cdata
            first, rest = _view(known + start - _BEFORE, _BEFORE + _FIRST), _view(known + start + 4 * _WORDS, _AFTER)
        return first.raw, rest.raw

    return mark


def _words_of_torch(generator: torch.Generator) -> int | None:
    """Return the address of the Mersenne Twister's words in a generator's object, None if they are not at the expected place."""
    state = generator.get_state().numpy()
    if state.nbytes < 8 * (3 + _WORDS):
        return None
    words = state[24 : 8 * (3 + _WORDS)].view("u8").astype("u4").tobytes()
    there = generator._cdata  # type: ignore[attr-defined]
    found = [start for start in range(_BEFORE, 256, 4) if ctypes.string_at(there + start, _FIRST) == words[:_FIRST]]
    return found[0] if len(found) == 1 and ctypes.string_at(there + found[0], len(words)) == words else None


@functools.cache
def _torch_tells() -> int | None:
    """Return the address of the words, if every move is visible there."""
    own = torch.Generator()
    own.manual_seed(1)

    def normal(kind: torch.dtype) -> None:
        torch.empty(1, dtype=kind, device="cpu").normal_(generator=own)

    start = _words_of_torch(own)
    moves: list[Callable[[], object]] = [partial(torch.rand, n, generator=own, dtype=torch.float32, device="cpu") for n in (1, _WORDS)]
    moves += [lambda: own.manual_seed(2)]
    moves += [partial(normal, kind) for kind in (torch.float64, torch.float32) for _ in range(2)]  # the second uses the kept value
    return start if start is not None and _tells(_torch(own, start), *moves) else None


@functools.cache
def _python_tells() -> bool:
    own = random.Random(1)
    moves = own.random, lambda: own.getrandbits(32 * _WORDS), lambda: own.gauss(0, 1), lambda: own.gauss(0, 1), lambda: own.seed(2)
    return _tells(_python(own), *moves)


@functools.cache
def _numpy_tells() -> bool:
    own = numpy.random.RandomState(1)
    moves = own.random, lambda: own.bytes(4 * _WORDS), own.standard_normal, own.standard_normal, lambda: own.seed(2)
    return _tells(_numpy(own), *moves)


def _tells(mark: Marks, *moves: Callable[[], object]) -> bool:
    """Return whether every move is visible in the marks."""
    if sys.implementation.name != "cpython":
        return False
    seen = [mark()]
    for move in moves:
        move()
        seen.append(mark())
    return None not in seen and len(set(seen)) == len(seen)

"""Whether a generator has moved since it was read, seen in the memory of its object.

By their own methods the states of Python's and numpy's generators take tens of microseconds to read, and behind a long computation that of
torch's too; that in every step several times, and most scripts never draw from most of them while they train. All three hold a Mersenne
Twister (numpy's at an address that it tells): 624 words, of which a position says how many are used up, and what was kept of a pair
of normal numbers. Words change all at once: when the last one is used up, and when a state is set. So the position, what is kept
and the first 16 words say whether it is still the same state; for other words to follow on the same 16, 2^512 to 1 is against it. That
the present interpreter, numpy and torch show it there is tried out first, on objects of our own; where not, states are always read.
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

_HEAD = object.__basicsize__  # bytes of an object in front of what is its own
_WORDS = 624
_FIRST = 16 * 4  # bytes of the first words
_BEFORE, _BEHIND = 24, 24  # bytes around torch's words: seed and position; normal numbers kept for the next call

Mark = tuple[Any, ...]  # another one, another state
Marks = Callable[[], Mark | None]  # tells the present mark, None where a generator does not show whether it moves


def marks_of_python() -> Marks:
    """Of the generator behind the functions of `random`, which is the same one as long as the process lives."""
    return _python(random._inst) if _python_tells() else no_mark


def marks_of_numpy() -> Marks:
    """Of the generator behind the functions of `numpy.random`; None while that is no Mersenne Twister."""
    return _numpy(numpy.random.mtrand._rand) if _numpy_tells() else no_mark


def marks_of_torch(generator: torch.Generator) -> Marks:
    """Of a generator on the host; of another one always None."""
    start = _torch_tells()
    return _torch(generator, start) if start is not None and generator.device.type == "cpu" else no_mark


def no_mark() -> None:
    """Of what is always read."""


def _view(address: int, size: int) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * size).from_address(address)


def _python(generator: random.Random) -> Marks:
    position = 4  # bytes, in front of the words
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
            first, rest = _view(known + start - _BEFORE, _BEFORE + _FIRST), _view(known + start + 4 * _WORDS, _BEHIND)
        return first.raw, rest.raw

    return mark


def _words_of_torch(generator: torch.Generator) -> int | None:
    """Where in a generator's object its Mersenne Twister has its words; None: not where it is looked for."""
    state = generator.get_state().numpy()
    if state.nbytes < 8 * (3 + _WORDS):
        return None
    words = state[24 : 8 * (3 + _WORDS)].view("u8").astype("u4").tobytes()
    there = generator._cdata  # type: ignore[attr-defined]
    found = [start for start in range(_BEFORE, 256, 4) if ctypes.string_at(there + start, _FIRST) == words[:_FIRST]]
    return found[0] if len(found) == 1 and ctypes.string_at(there + found[0], len(words)) == words else None


@functools.cache
def _torch_tells() -> int | None:
    """Where the words are, if every move is seen around there."""
    own = torch.Generator()
    own.manual_seed(1)

    def normal(kind: torch.dtype) -> None:
        torch.empty(1, dtype=kind, device="cpu").normal_(generator=own)

    start = _words_of_torch(own)
    moves: list[Callable[[], object]] = [partial(torch.rand, n, generator=own, dtype=torch.float32, device="cpu") for n in (1, _WORDS)]
    moves += [lambda: own.manual_seed(2)]
    moves += [partial(normal, kind) for kind in (torch.float64, torch.float32) for _ in range(2)]  # the second takes what is kept
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
    """Whether every move is seen."""
    if sys.implementation.name != "cpython":
        return False
    seen = [mark()]
    for move in moves:
        move()
        seen.append(mark())
    return None not in seen and len(set(seen)) == len(seen)

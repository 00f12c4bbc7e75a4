"""Readers for containers, and for things with numbers that are no tensors."""

from __future__ import annotations

import itertools
import random
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy

from understudy.worker.census.leaves import FIXED, LONGEST, SAMPLE, distance, mark, state_of
from understudy.worker.census.readers.reading import NOTHING, Part, Reading, numbered
from understudy.worker.census.walk import Path, attributes_of, items_of
from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.digests import digest_bytes

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def read_dict(path: Path, thing: dict[Any, Any]) -> Reading:
    """Return the items of a dict."""
    if len(thing) > LONGEST:
        return Reading((len(thing), _sample(list(dict.values(thing)))))
    return Reading(None, itertools.chain(items_of(path, thing), _own_attributes(path, thing)))


def read_sequence(path: Path, thing: Any) -> Reading:
    """Return the items of a list, tuple or deque."""
    base = next(kind for kind in (list, tuple, deque) if isinstance(thing, kind))
    items = list(base.__iter__(thing))
    if len(items) > LONGEST:
        return Reading((len(items), _sample(items)))
    return Reading(len(items), itertools.chain(numbered(path, items), _own_attributes(path, thing)))


def read_set(path: Path, thing: Any) -> Reading:
    """Return the items of a set."""
    fixed = sorted(repr(item) for item in list(thing) if type(item) in FIXED)
    return Reading((len(thing), digest_bytes("\0".join(fixed).encode(errors="surrogatepass"))))


def _sample(items: list[Any]) -> int:
    """Sample some items of a long list: fixed ones by value, others by type alone."""
    some = items[:: max(1, len(items) // SAMPLE)]
    return digest_bytes(repr([item if type(item) in FIXED else type(item) for item in some]).encode(errors="surrogatepass"))


def read_view(path: Path, thing: types.MappingProxyType[Any, Any]) -> Reading:
    """Return the items of a read-only view."""
    return Reading(None, ((path.then("item", str(key)), value) for key, value in list(thing.items())))


def _own_attributes(path: Path, thing: Any) -> Iterator[Part]:
    return attributes_of(path, thing) if type(thing).__flags__ & _HEAP_TYPE else iter(())


def read_weak_keys(path: Path, thing: weakref.WeakKeyDictionary[Any, Any]) -> Reading:
    """Return the values of a dict that does not keep its keys alive."""
    return Reading(None, numbered(path, list(vars(thing)["data"].values())))


def read_array(path: Path, values: numpy.ndarray[Any, Any]) -> Reading:
    """Return the content of an array."""
    plain = values.view(numpy.ndarray) if type(values) is not numpy.ndarray else values
    if plain.dtype.hasobject:
        return Reading(plain.shape, numbered(path, list(plain.flat[:LONGEST])))
    own = () if type(values) in (numpy.ndarray, numpy.memmap) else _own_attributes(path, values)
    return Reading(mark(plain), own)


def read_stream(path: Path, stream: Any) -> Reading:
    """Return the state of a generator of random numbers; the system's has none."""
    if isinstance(stream, random.SystemRandom):
        return NOTHING
    return Reading(digest_bytes(encode(list(state_of(stream)))), _own_attributes(path, stream))


def read_buffer(path: Path, thing: Any) -> Reading:
    """Return the content of a buffer."""
    data = memoryview(thing).cast("B")
    return Reading((len(data), digest_bytes(bytes(data[:: distance(len(data), len(data))]))))

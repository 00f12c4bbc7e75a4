"""Values that can be moved to another worker: plain values, tensors, arrays, generators of random numbers, and containers of these. Of a
tensor whose history is spent the values are moved.

Encodings are equal if the values are. On a newcomer a value is set in place if possible, because other names may refer to the same
object: lists, dicts, sets, deques, tensors, arrays and generators stay the same objects.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy
import torch

from understudy.worker.encoding.codec import Unencodable, decode, encode
from understudy.worker.encoding.digests import digest, digest_bytes
from understudy.worker.state.history import has_history

LARGEST = 1 << 20  # bytes of one value
LONGEST = 4096  # items of a list
SAMPLE = 1024  # items of a larger list, at least, in which a change is seen
ITEMS = 1 << 16  # of a value, with all its content
FIXED = frozenset({type(None), bool, int, float, complex, str, bytes})  # types that cannot change and contain nothing
_LEAVES = FIXED | {torch.dtype, torch.Size}
_IMMUTABLE = (*FIXED, Enum)
_LISTS, _DICTS, _SETS = (list, tuple), (dict, OrderedDict, Counter, defaultdict), (set, frozenset)
Stream = random.Random | numpy.random.Generator | numpy.random.RandomState | torch.Generator
_STREAMS = (random.Random, numpy.random.Generator, numpy.random.RandomState, torch.Generator)
_CONTAINERS = (*_LISTS, *_DICTS, deque)
_DEEPEST = 8


def is_fixed(value: Any) -> bool:
    """Return whether it cannot change, so that it is recognized by its identity."""
    return isinstance(value, _IMMUTABLE)


def is_bound(value: Any) -> bool:
    """Return whether another value can only be bound in its place, and other references to the object do not matter."""
    return is_fixed(value) or isinstance(value, tuple | frozenset | numpy.generic | torch.dtype)


def _covers_nothing(thing: Any) -> bool:
    return False


class Room:
    """The number of items that may still be read, and the test for things that are covered elsewhere."""

    def __init__(self, items: int, is_covered: Callable[[Any], bool] = _covers_nothing) -> None:
        self.items = items
        self.is_covered = is_covered


def is_leaf(value: Any, room: Room | None = None) -> bool:
    """Return whether it could be encoded, apart from the size of tensors. The items that are read for that are taken from `room`. A
    container of something that is covered elsewhere is no leaf: its items are.
    """
    room = room or Room(ITEMS)
    own = Room(ITEMS, room.is_covered)
    found = (type(value) is list and len(value) > LONGEST) or _is_leaf(value, 0, own)  # such a list is not searched
    room.items -= ITEMS - max(own.items, 0)
    return found


def _is_leaf(value: Any, depth: int, room: Room) -> bool:
    room.items -= 1
    if room.items < 0:
        return False
    kind = type(value)
    if kind in _LEAVES or isinstance(value, (Enum, numpy.generic)):
        return True
    if kind in _STREAMS:
        return depth == 0
    if depth and room.is_covered(value):
        return False
    if isinstance(value, torch.Tensor):
        return kind in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided and not has_history(value)
    if kind is numpy.ndarray:
        return value.dtype.kind in "biufcSU"
    if depth > _DEEPEST:
        return False
    if kind in _LISTS or kind in _SETS or kind is deque:
        return len(value) <= room.items and all(_is_leaf(item, depth + 1, room) for item in list(value))
    if kind in _DICTS:
        return len(value) <= room.items and all(_is_key(key) and _is_leaf(item, depth + 1, room) for key, item in list(value.items()))
    return False


def _is_key(key: Any) -> bool:
    """Return whether every worker has the same key in its place."""
    if type(key) is tuple:
        return all(map(_is_key, key))
    return type(key) in _LEAVES and not is_address(key)


def is_address(key: Any) -> bool:
    """Return whether a key is most likely the `id` of an object: every worker has another one in its place."""
    return type(key) is int and 1 << 40 <= key < 1 << 48 and key % 16 == 0


def is_large(value: Any) -> bool:
    """Return whether it is a tensor or an array beyond the limit, a container of some that are together, or a list beyond its own limit."""
    if type(value) is list and len(value) > LONGEST:
        return True
    return type(value) not in FIXED and size_of(value) > LARGEST


def mark(value: Any, whole: int = LARGEST) -> tuple[Any, ...]:
    """Return the mark of a large value: a different mark shows a change. Equal ones prove nothing for a tensor or array of more than
    `whole` bytes, of which only a sample is read, and for content that is not on the host, of which none is.
    """
    if type(value) is list and len(value) > LONGEST:
        return len(value), *map(id, value[:: max(1, len(value) // SAMPLE)])
    if type(value) in _CONTAINERS:
        items = [part for item in list(value.items()) for part in item] if isinstance(value, dict) else list(value)
        return type(value), *(mark(item, whole) if type(item) in _CONTAINERS or size_of(item) else repr(item) for item in items)
    if isinstance(value, torch.Tensor):
        seen = (value.dtype, value.shape, value.device, None if value.is_inference() else value._version)
        if value.device.type != "cpu" or not value.is_contiguous():
            return *seen, value.data_ptr()
        return *seen, digest(value.detach().reshape(-1)[:: distance(value.numel(), size_of(value), whole)].contiguous())
    flat = value.reshape(-1) if value.flags.c_contiguous else value.flat
    return value.dtype, value.shape, digest_bytes(flat[:: distance(value.size, value.nbytes, whole)].tobytes())


def distance(items: int, size: int, whole: int = LARGEST) -> int:
    """Return the distance of the items that are read of something with `size` bytes: 1 up to `whole` bytes."""
    return 1 if size <= whole else max(1, items // SAMPLE)


def encoded(value: Any) -> bytes:
    """Encode a value. Raises `Unencodable`, also if it is too large."""
    if size_of(value) > LARGEST:
        raise Unencodable(f"more than {LARGEST} bytes")
    data = encode([_plain(value)])
    if len(data) > 2 * LARGEST:
        raise Unencodable(f"more than {LARGEST} bytes")
    return data


def size_of(value: Any) -> int:
    """Return the size of the tensors and arrays in it, in bytes."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, numpy.ndarray):
        return int(value.nbytes)
    if type(value) in (*_LISTS, deque):
        return 0 if FIXED.issuperset(map(type, value)) else sum(map(size_of, list(value)))
    if type(value) in _DICTS:
        return 0 if FIXED.issuperset(map(type, list(value.values()))) else sum(map(size_of, list(value.values())))
    return 0


def _plain(value: Any) -> Any:
    """Convert a value to types that `codec` knows: any other, by name, to a dict with one key that no script has."""
    kind = type(value)
    if isinstance(value, Enum):
        return _tagged("enum", value.name)
    if kind in _STREAMS:
        return _tagged(*state_of(value))
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            return _tagged("device", [value.device.type, value])
        return value.detach().clone()  # whose memory is handed to numpy, and must not be resized from then on
    if kind is list or kind is tuple:
        return kind(value) if FIXED.issuperset(map(type, value)) else kind([_plain(item) for item in value])
    if kind is deque:
        return _tagged("deque", [value.maxlen, [_plain(item) for item in value]])
    if kind is defaultdict:
        return _tagged("defaultdict", [[key, _plain(item)] for key, item in value.items()])
    if kind is dict or kind is OrderedDict:
        return kind((key, _plain(item)) for key, item in value.items())
    return value


def state_of(stream: Stream) -> tuple[str, Any]:
    """Return the kind of a stream, and its state."""
    if isinstance(stream, random.Random):
        return "random", stream.getstate()
    if isinstance(stream, numpy.random.Generator):
        return "numpy", stream.bit_generator.state
    if isinstance(stream, numpy.random.RandomState):
        return "legacy", stream.get_state(legacy=False)
    return "torch", stream.get_state()


_TAG = "\0understudy"


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {_TAG: [kind, content]}


class Unfit(TypeError):
    """Raised when the present value cannot take the new one."""


def put_into(mine: Any, data: bytes, own: bool = False) -> Any:
    """Set `mine` to what was encoded, in place if possible; return the object to bind, which is `mine` then. `own`: the object is known to
    be the one that had this value. Raises `Unfit`.

    Tensors and arrays in containers are created again, except parameters: other references to them are unknown, perhaps they are data.
    """
    with torch.no_grad():
        return _put(mine, decode(data)[0], own, 0)


def _put(mine: Any, new: Any, own: bool, depth: int) -> Any:
    if type(new) is dict and len(new) == 1 and _TAG in new:
        return _put_tagged(mine, new[_TAG][0], new[_TAG][1], own, depth)
    if isinstance(new, torch.Tensor):
        if _takes(mine, new, own, depth):
            mine.copy_(new)
            return mine
        return new
    if type(new) is numpy.ndarray:
        fits = type(mine) is numpy.ndarray and mine.shape == new.shape and mine.dtype == new.dtype
        if fits and mine.flags.writeable and (own or (mine.base is None and not depth)):
            mine[...] = new
            return mine
        return new
    kind = type(new)
    if kind is list or kind is tuple:
        before = list(mine) if type(mine) is kind and len(mine) == len(new) else [None] * len(new)
        items = [_put(here, item, own, depth + 1) for here, item in zip(before, new, strict=True)]
        if type(mine) is list and kind is list:
            mine[:] = items
            return mine
        return kind(items)
    if kind in (dict, OrderedDict, Counter):
        there = mine if type(mine) is kind else {}
        merged = {key: _put(there.get(key), item, own, depth + 1) for key, item in new.items()}
        if type(mine) is kind:
            mine.clear()
            mine.update(merged)
            return mine
        return kind(merged)
    if kind is set and type(mine) is set:
        mine.clear()
        mine.update(new)
        return mine
    return new


def _takes(mine: Any, new: torch.Tensor, own: bool, depth: int) -> bool:
    """Return whether `mine` can be overwritten: its own memory, not a part of another tensor or of a file."""
    fits = isinstance(mine, torch.Tensor) and mine.shape == new.shape and mine.dtype == new.dtype
    alone = fits and (isinstance(mine, torch.nn.Parameter) or not depth)
    return bool(fits and (own or (alone and not mine._is_view() and mine.untyped_storage().resizable())))


def _put_tagged(mine: Any, kind: str, content: Any, own: bool, depth: int) -> Any:
    if kind == "enum" and isinstance(mine, Enum):
        return type(mine)[content]
    if kind == "random" and type(mine) is random.Random:
        mine.setstate(content)
    elif kind == "numpy" and type(mine) is numpy.random.Generator:
        mine.bit_generator.state = content
    elif (kind == "legacy" and type(mine) is numpy.random.RandomState) or (kind == "torch" and type(mine) is torch.Generator):
        mine.set_state(content)
    elif kind == "device":
        where, tensor = content
        if _takes(mine, tensor, own, depth):
            mine.copy_(tensor)
            return mine
        return tensor.to(where)
    elif kind == "deque":
        length, items = content
        fresh = [_put(None, item, own, depth + 1) for item in items]
        if type(mine) is not deque or mine.maxlen != length:
            return deque(fresh, length)
        mine.clear()
        mine.extend(fresh)
    elif kind == "defaultdict" and type(mine) is defaultdict:
        merged = [(key, _put(mine.get(key), item, own, depth + 1)) for key, item in content]
        mine.clear()
        mine.update(merged)
    else:
        raise Unfit(f"a {type(mine).__qualname__} is no place for what another worker has as {kind}")
    return mine

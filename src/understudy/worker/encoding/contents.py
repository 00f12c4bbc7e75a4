"""Digests of a batch or an argument of any kind: tensors, arrays, numbers, strings, containers, and plain objects of these.

A type that cannot be read (an open file, an object of a C extension) is named: a comparison of two digests has to take into account
that they do not cover everything. Unknown is not equal.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy
import torch
from torch.utils.data import DataLoader

from understudy.worker.encoding.codec import Unencodable, encode
from understudy.worker.encoding.digests import digest, digest_bytes

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_OF_PYTHON = 0 if sys.version_info >= (3, 12) else 2 * _POINTER  # bytes that an object has for its attributes and weak references
_DEEPEST = 64  # containers in containers
_NOT_DATA = (torch.nn.Module, torch.optim.Optimizer, torch.Generator, DataLoader, type)  # passed along, and covered in other ways


class Content(NamedTuple):
    """The digests of a thing. `data`: of tensors, arrays, plain values and containers; `objects`: of the attributes of plain objects;
    `opaque`: the first type that could not be read, or "".
    """

    data: int
    objects: int
    opaque: str

    @property
    def all(self) -> int:
        return self.data ^ self.objects


def content_of(thing: Any) -> Content:
    """Return the content. Equal things have equal contents on every rank and in every process (with one PYTHONHASHSEED for all, as a job
    has).
    """
    reading = _Reading()
    reading.read(thing, 0)
    data, objects = (digest_bytes(b"".join(parts)) if parts else 0 for parts in (reading.data, reading.objects))
    return Content(data, objects, reading.opaque)


def _is_python(kind: type) -> bool:
    """Return whether all content of its objects is in their attributes: a type of C may contain anything. From Python 3.12 on many of
    these are made like a class of Python, and only the size of their objects distinguishes them.
    """
    if not all(part is object or part.__flags__ & _HEAP_TYPE for part in kind.__mro__):
        return False
    slots = sum(name not in ("__dict__", "__weakref__") for part in kind.__mro__ for name in _slots(part))
    return kind.__basicsize__ - object.__basicsize__ - slots * _POINTER <= _OF_PYTHON


def _slots(kind: type) -> tuple[str, ...]:
    found = kind.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


class _Reading:
    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.objects: list[bytes] = []
        self.opaque = ""
        self._seen: list[Any] = []  # objects on the way to the present one

    def read(self, thing: Any, depth: int) -> None:
        kind = type(thing)
        if kind is list or kind is tuple:
            self._many(thing, depth)
        elif isinstance(thing, torch.Tensor):
            self._tensor(thing)
        elif isinstance(thing, numpy.ndarray) and thing.dtype.hasobject:
            self._many(thing.reshape(-1).tolist(), depth)
        elif isinstance(thing, numpy.ndarray):
            self.data.append(f"{thing.dtype}{thing.shape}".encode() + thing.tobytes())
        elif isinstance(thing, Mapping):
            self.data.append(len(thing).to_bytes(8, "little"))
            self._many([part for item in thing.items() for part in item], depth)
        elif isinstance(thing, list | tuple):
            self._many(thing, depth)
        else:
            self._other(thing, depth)

    def _many(self, things: Any, depth: int) -> None:
        if depth >= _DEEPEST:
            self.opaque = self.opaque or "container nested too deeply"
            return
        self.data.append(b"(%d" % len(things))
        for part in things:
            self.read(part, depth + 1)

    def _tensor(self, thing: torch.Tensor) -> None:
        plain = getattr(thing, "_local_tensor", thing).detach()
        if plain.is_nested or plain.is_quantized:
            self.opaque = self.opaque or "nested or quantized tensor"
        elif plain.layout is torch.strided:
            self.data.append(digest(plain.contiguous()).to_bytes(8, "little"))
        elif plain.layout is torch.sparse_coo:
            whole = plain.coalesce()
            self.data += [digest(part.contiguous()).to_bytes(8, "little") for part in (whole.indices(), whole.values())]
        else:
            self.opaque = self.opaque or f"tensor of layout {plain.layout}"

    def _other(self, thing: Any, depth: int) -> None:
        if isinstance(thing, _NOT_DATA) or callable(getattr(thing, "state_dict", None)):
            return  # not a part of the data: registered things are covered, and others are searched for elsewhere
        if isinstance(thing, Enum):
            self.data.append(str(thing).encode())
            return
        try:
            self.data.append(encode(thing))
            return
        except (Unencodable, ValueError):
            pass
        attributes = getattr(thing, "__dict__", None)
        kind: Any = type(thing)
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__ and _is_python(kind)
        slots = [name for name in getattr(type(thing), "__slots__", ()) if isinstance(name, str)]
        if (attributes is None and not slots and not dataclasses.is_dataclass(thing)) or not plain or type(thing).__module__ == "builtins":
            name = f"{type(thing).__module__}.{type(thing).__qualname__}".removeprefix("builtins.")
            self.opaque = self.opaque or name
            return
        if any(thing is other for other in self._seen) or depth >= _DEEPEST:
            return
        self._seen.append(thing)
        inside = _Reading()
        inside._seen = self._seen
        inside.read({**(attributes or {}), **{name: getattr(thing, name) for name in slots if hasattr(thing, name)}}, depth + 1)
        self._seen.pop()
        self.objects += [type(thing).__qualname__.encode(), *inside.data, *inside.objects]
        self.opaque = self.opaque or inside.opaque

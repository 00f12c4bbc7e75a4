"""Restores attributes and containers that an interrupted attempt has changed for the first time, or has left half full.

At each begin these are noted by reference: the attributes of objects that the last walk has met, other names of a scope in which
something changes, and the items of small containers among them. A redo then reaches the next shard of a loader once more, and finds the
list empty in which a step collects its losses.

Known limits: a change in place inside an item is not restored. Only plain values, flat containers of these, and tensors and arrays
without a history, up to `MOST_KEPT` bytes, are kept: outputs of a step would take memory for one more step. A container that a thread fills
is left alone only if its object refers to the thread, or to a lock or queue; a variable of a module that a thread fills is restored,
too.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import is_
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy
import torch

from understudy.worker.census.leaves import is_fixed
from understudy.worker.census.roots import FRAME, RootKey, Table
from understudy.worker.census.sketches import sketch
from understudy.worker.census.walk import Gone, Path, WalkResult, owner_with_attributes

MOST_KEPT = 64 << 20  # bytes of one tensor or array that is kept for a redo
MET = 64  # objects, and containers that are variables, whose content is noted
_FLAT = 64  # items of a container that counts as flat
_CONTAINERS = (list, tuple, dict)
_MAPPINGS: tuple[type, ...] = (OrderedDict, dict)
_BASES: tuple[type, ...] = (*_MAPPINGS, list, set, deque)  # of containers whose items are noted
_OF_THREADS = (
    *(threading.Thread, threading.Event, threading.Condition, threading.Semaphore, type(threading.Lock()), type(threading.RLock())),
    *(queue.Queue, queue.SimpleQueue, concurrent.futures.Executor),
)
_ABSENT = object()
_Attributes = Callable[[], dict[str, Any] | None]  # returns the attributes of an object, None if it is gone


def is_keepable(value: Any) -> bool:
    """Return whether it may be kept until the next begin."""
    if is_fixed(value):
        return True
    if isinstance(value, torch.Tensor):
        return value.grad_fn is None and value.numel() * value.element_size() <= MOST_KEPT
    if isinstance(value, numpy.ndarray):
        return value.nbytes <= MOST_KEPT
    return type(value) in _CONTAINERS and len(value) <= _FLAT and sketch(value) is not None


@dataclass(frozen=True)
class _Names:
    """The names as of a begin."""

    kept: dict[str, Any]
    others: dict[str, int]  # by id: a reference would keep them alive

    @staticmethod
    def of(names: Mapping[str, Any]) -> _Names:
        found = _Names({}, {})
        for name, value in list(names.items()):
            if not name.startswith("__"):
                if is_keepable(value):
                    found.kept[name] = value
                else:
                    found.others[name] = id(value)
        return found

    def is_another(self, name: str, value: Any) -> bool:
        return self.kept[name] is not value if name in self.kept else self.others.get(name) != id(value)


class Met:
    """The objects, and containers that are variables, whose content is noted, as a walk has met them."""

    def __init__(self, found: WalkResult | None = None, cells: Mapping[str, CellType] | None = None) -> None:
        """Take the result of a walk. `cells`: what transactions have captured, by name. To read all locals of a frame at each begin would
        keep them alive.
        """
        self.objects: list[tuple[Path, weakref.ref[Any]]] = []
        self.variables: list[Path] = []
        self.captured: list[CellType] = []
        for path, thing in found.owners if found is not None else ():
            if not path.steps and isinstance(thing, _BASES) and len(self.variables) + len(self.captured) < MET:
                if path.root[0] != FRAME:
                    self.variables.append(path)
                elif path.name in (cells or {}):
                    self.captured.append((cells or {})[path.name])
            if type(thing) in _BASES or isinstance(thing, torch.nn.Module) or _has_threads(thing):
                continue
            if type(thing).__weakrefoffset__ and len(self.objects) < MET:
                self.objects.append((path.then("attribute", ""), weakref.ref(thing)))


@dataclass(frozen=True)
class Owners:
    scopes: dict[RootKey, _Names] = field(default_factory=dict)
    attributes: list[tuple[Path, _Attributes, _Names]] = field(default_factory=list)  # of each object: a path to one, and all of them
    contents: list[tuple[Any, list[Any]]] = field(default_factory=list)  # of containers

    @staticmethod
    def of(paths: Iterable[Path], tables: Mapping[RootKey, Table], met: Met) -> Owners:
        found = Owners()
        seen: set[int] = set()
        for path, reference in met.objects:
            attributes = getattr(reference(), "__dict__", None)
            if type(attributes) is dict and id(attributes) not in seen:
                seen.add(id(attributes))
                found.attributes.append((path, _of(reference), _Names.of(attributes)))
                found._note_contents(attributes.values())
        found._note_contents(tables[path.root].items().get(path.name) for path in met.variables if path.root in tables)
        found._note_contents(cell.cell_contents for cell in met.captured)
        for path in paths:
            if not path.steps:
                if path.root in tables and path.root not in found.scopes:
                    found.scopes[path.root] = _Names.of(tables[path.root].items())
                continue
            try:
                attributes = owner_with_attributes(path, tables)
            except Gone:
                continue
            if attributes is not None and id(attributes) not in seen:
                seen.add(id(attributes))
                found.attributes.append((path, lambda of=attributes: of, _Names.of(attributes)))  # type: ignore[misc]
        return found

    def _note_contents(self, values: Iterable[Any]) -> None:
        for value in list(values):
            if isinstance(value, _BASES) and _base(value).__len__(value) <= _FLAT:
                items = _items(value)
                if all(map(_may_be_kept, [part for _, part in items] if isinstance(value, dict) else items)):
                    self.contents.append((value, items))

    def rebound(self, tables: Mapping[RootKey, Table]) -> Iterator[tuple[Path, Any]]:
        """Yield what is another object now than it was."""
        for root, before in self.scopes.items():
            now = list(tables[root].items().items()) if root in tables else []
            yield from ((Path(root, name), value) for name, value in now if not name.startswith("__") and before.is_another(name, value))
        for path, attributes_of, before in self.attributes:
            attributes = attributes_of() or {}
            yield from ((_sibling(path, name), value) for name, value in list(attributes.items()) if before.is_another(name, value))

    def restore(self, tables: Mapping[RootKey, Table], is_ignored: Callable[[Path], bool]) -> None:
        for container, content in self.contents:
            _refill(container, content)
        for root, before in self.scopes.items():
            now = dict(tables[root].items()) if root in tables else {}
            for name, value in before.kept.items() if now else ():
                if now.get(name, _ABSENT) is not value and not is_ignored(Path(root, name)):
                    tables[root].put(name, value)
        for path, attributes_of, before in self.attributes:
            if (attributes := attributes_of()) is None:
                continue
            for name in [name for name in list(attributes) if name not in before.kept and name not in before.others]:
                if not name.startswith("__") and not is_ignored(_sibling(path, name)):
                    del attributes[name]
            for name, value in before.kept.items():
                if attributes.get(name, _ABSENT) is not value and not is_ignored(_sibling(path, name)):
                    attributes[name] = value


def _of(reference: weakref.ref[Any]) -> _Attributes:
    """Return the attributes of an object that may be gone: to refer to them would keep alive what they are."""
    return lambda: getattr(reference(), "__dict__", None)


def _may_be_kept(item: Any) -> bool:
    """Return whether it may be kept until the next begin: no graphs and not much memory depend on it."""
    return is_keepable(item) or isinstance(item, FunctionType | MethodType | type)


def _has_threads(thing: Any) -> bool:
    """Return whether a thread may change it meanwhile: what the thread has done since must not be undone."""
    attributes = getattr(thing, "__dict__", None)
    inside = list(attributes.values()) if type(attributes) is dict else []
    return isinstance(thing, _OF_THREADS) or any(isinstance(part, _OF_THREADS) for part in inside)


def _base(container: Any) -> Any:
    """Return the class whose methods read and fill it, so that no code of the script runs."""
    return next(kind for kind in _BASES if isinstance(container, kind))


def _items(container: Any) -> list[Any]:
    base = _base(container)
    return list(base.items(container) if base in _MAPPINGS else base.__iter__(container))


def _refill(container: Any, before: list[Any]) -> None:
    """Restore the content in place, and only if an item in it is another object."""
    base, now = _base(container), _items(container)
    flat = [tuple(chain.from_iterable(items)) if base in _MAPPINGS else tuple(items) for items in (now, before)]
    if len(now) != len(before) or not all(map(is_, *flat)):
        base.clear(container)
        (base.extend if base in (list, deque) else base.update)(container, before)


def _sibling(path: Path, name: str) -> Path:
    return replace(path, steps=(*path.steps[:-1], ("attribute", name)))

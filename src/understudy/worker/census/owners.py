"""What stands beside that which the training changes: other names of the same scope, other attributes of the same object. A step may
change one of them for the first time, as a loader that comes to its next shard, and be interrupted: a redo binds them again.

Known limits: by reference, so what an attempt changes in place for the first time is not put back. Only plain values, flat containers of
these, and tensors and arrays without a history of up to `HELD` bytes: what else a step leaves behind, as its outputs, would be kept in
memory for one more step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy
import torch

from understudy.worker.census.leaves import is_fixed
from understudy.worker.census.roots import RootKey, Table
from understudy.worker.census.sketches import sketch
from understudy.worker.census.walk import Gone, Path, owner_with_attributes

HELD = 64 << 20  # bytes of one tensor or array that is kept for a redo
_FLAT = 64  # items of a container that is
_CONTAINERS = (list, tuple, dict)
_ABSENT = object()


def is_held(value: Any) -> bool:
    """Whether it may be kept until the next begin."""
    if is_fixed(value):
        return True
    if isinstance(value, torch.Tensor):
        return value.grad_fn is None and value.numel() * value.element_size() <= HELD
    if isinstance(value, numpy.ndarray):
        return value.nbytes <= HELD
    return type(value) in _CONTAINERS and len(value) <= _FLAT and sketch(value) is not None


@dataclass(frozen=True)
class _Names:
    """As of a begin."""

    held: dict[str, Any]
    others: dict[str, int]  # by id: a reference would keep them alive

    @staticmethod
    def of(names: Mapping[str, Any]) -> _Names:
        found = _Names({}, {})
        for name, value in list(names.items()):
            if not name.startswith("__"):
                if is_held(value):
                    found.held[name] = value
                else:
                    found.others[name] = id(value)
        return found

    def is_another(self, name: str, value: Any) -> bool:
        return self.held[name] is not value if name in self.held else self.others.get(name) != id(value)


@dataclass(frozen=True)
class Owners:
    scopes: dict[RootKey, _Names] = field(default_factory=dict)
    attributes: list[tuple[Path, dict[str, Any], _Names]] = field(default_factory=list)  # of each object: a way to one, and all of them

    @staticmethod
    def of(paths: Iterable[Path], tables: Mapping[RootKey, Table]) -> Owners:
        found = Owners()
        seen: set[int] = set()
        for path in paths:
            if not path.steps:
                if path.root in tables and path.root not in found.scopes:
                    found.scopes[path.root] = _Names.of(tables[path.root].items())
                continue
            try:
                held = owner_with_attributes(path, tables)
            except Gone:
                continue
            if held is not None and id(held) not in seen:
                seen.add(id(held))
                found.attributes.append((path, held, _Names.of(held)))
        return found

    def bound_anew(self, tables: Mapping[RootKey, Table]) -> Iterator[tuple[Path, Any]]:
        """What is another object now than it was."""
        for root, before in self.scopes.items():
            now = list(tables[root].items().items()) if root in tables else []
            yield from ((Path(root, name), value) for name, value in now if not name.startswith("__") and before.is_another(name, value))
        for path, attributes, before in self.attributes:
            yield from ((_beside(path, name), value) for name, value in list(attributes.items()) if before.is_another(name, value))

    def restore(self, tables: Mapping[RootKey, Table], is_ignored: Callable[[Path], bool]) -> None:
        for root, before in self.scopes.items():
            now = dict(tables[root].items()) if root in tables else {}
            for name, value in before.held.items() if now else ():
                if now.get(name, _ABSENT) is not value and not is_ignored(Path(root, name)):
                    tables[root].put(name, value)
        for path, attributes, before in self.attributes:
            for name in [name for name in attributes if name not in before.held and name not in before.others]:
                if not name.startswith("__") and not is_ignored(_beside(path, name)):
                    del attributes[name]
            for name, value in before.held.items():
                if attributes.get(name, _ABSENT) is not value and not is_ignored(_beside(path, name)):
                    attributes[name] = value


def _beside(path: Path, name: str) -> Path:
    return replace(path, steps=(*path.steps[:-1], ("attribute", name)))

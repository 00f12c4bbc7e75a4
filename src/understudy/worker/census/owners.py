"""What stands beside that which the training changes: other names of the same scope, other attributes of the same object. A step may
change one of them for the first time, as a loader that comes to its next shard, and be interrupted: a redo binds them again.

Known limits: by reference. What an attempt changes in place for the first time, without another object, is not put back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from understudy.worker.census.roots import RootKey, Table
from understudy.worker.census.walk import Gone, Path, owner_with_attributes

_ABSENT = object()


@dataclass(frozen=True)
class Owners:
    scopes: dict[RootKey, dict[str, Any]] = field(default_factory=dict)
    attributes: list[tuple[Path, dict[str, Any], dict[str, Any]]] = field(default_factory=list)  # of each object, and as they were

    @staticmethod
    def of(paths: Iterable[Path], tables: Mapping[RootKey, Table]) -> Owners:
        found = Owners()
        seen: set[int] = set()
        for path in paths:
            if not path.steps:
                if path.root in tables and path.root not in found.scopes:
                    found.scopes[path.root] = dict(tables[path.root].items())
                continue
            try:
                held = owner_with_attributes(path, tables)
            except Gone:
                continue
            if held is not None and id(held) not in seen:
                seen.add(id(held))
                found.attributes.append((path, held, dict(held)))
        return found

    def bound_anew(self, tables: Mapping[RootKey, Table]) -> Iterator[tuple[Path, Any]]:
        """What is another object now than it was."""
        for root, before in self.scopes.items():
            now = dict(tables[root].items()) if root in tables else {}
            yield from ((Path(root, name), value) for name, value in now.items() if before.get(name, _ABSENT) is not value)
        for path, held, before in self.attributes:
            for name, value in held.items():
                if before.get(name, _ABSENT) is not value:
                    yield replace(path, steps=(*path.steps[:-1], ("attribute", name))), value

    def restore(self, tables: Mapping[RootKey, Table], ignored: Collection[str]) -> None:
        for root, before in self.scopes.items():
            if root not in tables:
                continue
            now = dict(tables[root].items())
            for name, value in before.items():
                if name not in ignored and not name.startswith("__") and now.get(name, _ABSENT) is not value:
                    tables[root].put(name, value)
        for _, held, before in self.attributes:
            for name in [name for name in held if name not in before and name not in ignored]:
                del held[name]
            for name, value in before.items():
                if name not in ignored and held.get(name, _ABSENT) is not value:
                    held[name] = value

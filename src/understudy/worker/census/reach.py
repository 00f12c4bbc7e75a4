"""Detects changes in what a walk cannot carry over to another worker.

A walk (`walk`) visits what can be copied. It ends at functions, objects of libraries, registered modules and iterators. From these ends
`reach` follows the readers of `readers`, and stores a mark for each object by its path. Comparing the marks with those of the set-up
shows what has changed: the function that a name is bound to, a closure, a hook, a position, a cached result.

An object with several names is read under the first of them. The other names are marked with the path of the first, so that rebinding
one of them is a change as well.

A class that the script has made in a function, or under no name of a module, is reached from its first object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

from understudy.worker.census.foreign import foreign_globals
from understudy.worker.census.leaves import FIXED
from understudy.worker.census.readers import read_base, read_object
from understudy.worker.census.readers.reading import CARRIED, NOTHING, Reading, is_class_of_script
from understudy.worker.census.readers.registered import read_registered
from understudy.worker.census.roots import CLASS, CLOSURE, FRAME, FUNCTION, RootKey, Table
from understudy.worker.census.walk import MOST, Path, WalkResult

Marks = dict[Path, Hashable]
_NOTHING = object()


def reach(tables: Mapping[RootKey, Table], found: WalkResult, is_covered: Callable[[Any], bool]) -> Marks:
    """Return the marks of at most `MOST` objects that can be reached from the ends of a walk, which has `found` them from `tables`."""
    marks: Marks = dict(found.bound)
    rooted = {(kind, id(table.of)) for (kind, _), table in tables.items() if kind in (CLASS, CLOSURE, FUNCTION)}
    running = [table.items() for (kind, _), table in tables.items() if kind == FRAME]
    foreign = list(foreign_globals())
    found.kept.extend(thing for _, thing in foreign)
    classes = [(path.then("attribute", "__class__"), type(thing)) for path, thing in found.owners if _has_own_class(thing)]
    todo, seen, most = [*foreign, *found.ends, *_first_of_each(classes)][::-1], found.seen, len(marks) + MOST
    gone_into = set(seen)  # by the walk, which has read their attributes
    while todo:
        path, thing = todo.pop()
        if len(marks) > most:
            found.beyond = found.beyond or path
            break
        if type(thing) in FIXED:
            marks[path] = read_object(path, thing).mark
            continue
        first = seen.get(id(thing)) if thing is not CARRIED else None
        if first is not None and first != path:
            marks[path] = first
            continue
        seen[id(thing)] = path
        try:
            reading = _read(path, thing, is_covered, id(thing) in gone_into)
            parts = list(reading.parts)
        except Exception:  # an object of the script's own that cannot be read; it must not end a step
            found.unreadable = found.unreadable or path
            continue
        if reading is NOTHING:
            del seen[id(thing)]  # nor is another name of it
        elif reading.mark is not None:
            marks[path] = reading.mark
        if id(thing) not in gone_into and _has_own_class(thing) and id(type(thing)) not in seen:
            parts.append((path.then("attribute", "__class__"), type(thing)))
        parts = [part for part in parts if not _is_looked_at(*part, id(thing), rooted, running)]
        found.kept.extend(part for _, part in parts)  # or another object gets its id
        todo.extend(reversed(parts))
    return marks


def _has_own_class(thing: Any) -> bool:
    """Return whether its class is the script's, and no root by its name."""
    kind = type(thing)
    return "<locals>" in kind.__qualname__ and is_class_of_script(kind)


def _first_of_each(classes: Iterable[tuple[Path, type]]) -> list[tuple[Path, type]]:
    return list({id(kind): (path, kind) for path, kind in reversed(list(classes))}.values())


def _read(path: Path, thing: Any, is_covered: Callable[[Any], bool], gone_into: bool) -> Reading:
    if is_covered(thing):
        return read_registered(path, thing)
    return read_base(path, thing) if gone_into else read_object(path, thing)


def _is_looked_at(path: Path, part: Any, owner: int, rooted: Collection[tuple[str, int]], running: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a part is visible from another root: an attribute of a class or function of a module, a name that a closure has from
    a running function.
    """
    kind, name = path.steps[-1]
    if kind == "cell":
        return (CLOSURE, owner) in rooted or any(names.get(name, _NOTHING) is part for names in running)
    return (CLASS, owner) in rooted or (FUNCTION, owner) in rooted


class Changes:
    """The marks as of the end of the set-up, or of the first time that their root existed, to find changes since then.

    Of frames only those that ran then and still run: a newcomer computes for itself what a function begins with.
    """

    def __init__(self, first: Marks, tables: Mapping[RootKey, Table]) -> None:
        self._first = first
        self._roots = {*tables, *(path.root for path in first)}
        self._frames = _frames(tables)

    def since(self, now: Marks, tables: Mapping[RootKey, Table]) -> list[Path]:
        """Return the paths of what has changed; of the parts of a changed thing, the thing alone."""
        roots = {*tables, *(path.root for path in now)}
        new = roots - self._roots
        self._roots |= new
        self._first |= {path: mark for path, mark in now.items() if path.root in new or self._is_defined(path, now)}
        frames = _frames(tables)
        there = {root for root in roots if self._frames.get(root) == frames.get(root)}
        marked = ((path, mark) for path, mark in now.items() if path.root in there and mark != CARRIED.mark)
        changed = {path for path, mark in marked if self._first.get(path, _NOTHING) != mark}
        changed |= {path for path in self._first if path not in now and path.root in there}
        return [path for path in changed if not any(owner in changed for owner in path.owners())]

    def _is_defined(self, path: Path, now: Marks) -> bool:
        """Return whether it depends on a function or class that the script has defined since: a newcomer defines it, too."""
        top = Path(path.root, path.name)
        if top in self._first:
            return False
        match now.get(top):
            case ("function" | "type", (*_, str(name), int())) | ("function", (_, str(name))) | ("type", str(name)):
                return name.rpartition(".")[2] == path.name
        return False


def _frames(tables: Mapping[RootKey, Table]) -> dict[RootKey, int]:
    return {root: id(table.of) for root, table in tables.items() if root[0] == FRAME}

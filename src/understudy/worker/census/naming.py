"""The notices about what the census has found and cannot carry over: its name, the line that stores it, and the line that would help."""

from __future__ import annotations

import dis
import inspect
import itertools
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy
import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from understudy.messages import census
from understudy.messages.base import Text
from understudy.worker.census.running import Running
from understudy.worker.census.stores import first_value, home, last_name, where
from understudy.worker.census.walk import Path

MOVED, LEFT, LARGE, UNREAD, BEYOND, RUNNING, HISTORY, UNSEEN = "moved", "left", "large", "unread", "beyond", "running", "history", "unseen"
WHY = {
    MOVED: census.LISTED_MOVED(),
    LEFT: census.LISTED_LEFT(),
    LARGE: census.LISTED_LARGE(),
    UNREAD: census.LISTED_UNREAD(),
    BEYOND: census.LISTED_BEYOND(),
    HISTORY: census.LISTED_HISTORY(),
    UNSEEN: census.LISTED_UNSEEN(),
    RUNNING: census.LISTED_RUNNING(),
}
_SHOWN = 4
NOTICES = 8  # of one kind at most
_ONCE = (UNREAD, BEYOND, RUNNING)  # kinds whose first notice says all
_REGISTERED = (torch.Tensor, torch.nn.Module, torch.Generator, numpy.random.Generator)


@dataclass(frozen=True)
class Uncovered:
    path: Path
    thing: Any = None  # the present value; None: there is none any more
    owner: type | None = None  # of what has its last name as an attribute


class PastNotices:
    """Remembers what has been in a notice."""

    def __init__(self) -> None:
        self._said: dict[str, set[str]] = {}  # entries, by kind
        self._counts: dict[str, int] = {}  # notices, by kind

    def new(self, kind: str, entries: Iterable[str]) -> list[str]:
        """Return those of the entries that a notice is due for, and count it; none after the last notice of the kind."""
        said = self._said.setdefault(kind, set())
        found = [entry for entry in entries if entry not in said]
        count = self._counts.get(kind, 0)
        if not found or count >= (1 if kind in _ONCE else NOTICES):
            return []
        said.update(found)
        self._counts[kind] = count + 1
        return found


def notice(kind: str, found: Sequence[Uncovered]) -> Text:
    """Return the notice of one kind. Advice is given for the first by name."""
    found = sorted(found, key=lambda one: one.path.shown)
    first = found[0]
    named = [f"{one.path.shown} ({where(one.path, one.owner)})" for one in found[:_SHOWN]]
    names, name, shown = _first_of(named, len(found)), last_name(first.path), first.path.shown
    if kind == MOVED:
        return _moves(first, names)
    if kind == LEFT:
        return census.DIFFERS_BY_RANK(names=names, name=name, value=_value(first), shown=shown)
    if kind == LARGE:
        if isinstance(first.thing, _REGISTERED):
            return census.TOO_LARGE_TENSOR(names=names, name=name, shown=shown)
        return census.TOO_LARGE_VALUE(names=names, name=name, value=_value(first), shown=shown)
    if kind == HISTORY:
        return census.KEEPS_GRAPH(names=names, shown=shown)
    if kind == UNSEEN:
        return census.CHANGES_UNSEEN(names=names, shown=shown)
    if kind == UNREAD:
        return census.SOURCE_UNREADABLE(home=home(first.path.root))
    return census.LOOK_ENDED(names=few(named, len(found)), root=first.path.name)


def _moves(first: Uncovered, names: str) -> Text:
    name, shown = last_name(first.path), first.path.shown
    if isinstance(first.thing, itertools.count):
        return census.COUNTER_MOVES(names=names, name=name)
    if isinstance(first.thing, _BaseDataLoaderIter):
        return census.LOADER_MOVES(names=names, shown=shown)
    if isinstance(first.thing, types.GeneratorType) and _is_sent_to(first.thing.gi_code):
        local = ", ".join(itertools.islice(inspect.getgeneratorlocals(first.thing), _SHOWN))
        return census.SENT_TO(names=names, locals=f" ({local})" if local else "")
    return census.ITERATOR_MOVES(names=names, shown=shown)


def _is_sent_to(code: CodeType) -> bool:
    """Return whether the value of any `yield` in it is used; values that it passes on by `yield from` belong to another generator."""
    names = [one.opname for one in dis.get_instructions(code) if one.opname != "RESUME"]
    unused = ("POP_TOP", "JUMP_BACKWARD_NO_INTERRUPT")
    return any(one == "YIELD_VALUE" and then not in unused for one, then in itertools.pairwise(names))


def loop_notice(found: Sequence[Running]) -> Text:
    """Return the notice about counters in the `for` of loops of the job."""
    first = found[0]
    more = f" (one of {len(found)})" if len(found) > 1 else ""
    if first.what == "enumerate":
        return census.ENUMERATE_COUNTS(name=first.name, place=first.where, more=more)
    if first.what == "zip":
        return census.ZIP_DRAWS(name=first.name, source=first.source, place=first.where, more=more)
    return census.ISLICE_COUNTS(place=first.where, more=more)


def _first_of(names: Sequence[str], count: int) -> str:
    """Return the first name as the subject of a sentence: `a`, or `a, like b, c and 2 more,`."""
    if count == 1:
        return names[0]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{names[0]}, like {', '.join(names[1:])}{more},"


def few(names: Sequence[str], count: int) -> str:
    """Return the first of so many names."""
    return ", ".join(names[:_SHOWN]) + (f" and {count - _SHOWN} more" if count > _SHOWN else "")


def _value(one: Uncovered) -> str:
    """Return the first one that is stored, as source."""
    return first_value(one.path, one.owner) or "..."

"""Load what other packages add to Understudy: objects that they name by entry points, in groups (`understudy.backends`, ...).

    [project.entry-points."understudy.backends"]
    mine = "my_package.my_module:MyBackend"

They are in the order of their names, so that it is the same on every machine of a job. One that cannot be loaded, or is not what its group
requires, ends the program with a message that names its distribution: if it were left out silently, it would show much later, as
a rank that works differently from the others.

A group is searched in the lists of all installed distributions once per process (`entries`), because that takes some 15 ms; a process
that will be forked does it for all its children. Nothing is imported for that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from typing import Any, TypeVar

from understudy.messages import extensions

T = TypeVar("T")


@cache
def entries(group: str) -> tuple[EntryPoint, ...]:
    """Return all entry points of `group`, by name. Raises `ValueError` for a name that two distributions use."""
    found = sorted(entry_points(group=group), key=lambda entry: (entry.name, _distribution(entry)))
    for one, other in pairwise(found):
        if one.name == other.name:
            raise ValueError(extensions.SAME_NAME(one=_title(one), other=_title(other)))
    return tuple(found)


def instances(group: str, kind: type[T]) -> list[T]:
    """Return the objects of `group`, each a `kind`. Raises `ValueError`."""
    return [_load(entry, lambda found: isinstance(found, kind), f"no {kind.__name__}") for entry in entries(group)]


def classes(group: str, base: type[T]) -> list[type[T]]:
    """Return the classes of `group`, each derived from `base` and complete. Raises `ValueError`."""
    found = []
    for entry in entries(group):
        one = _load(entry, lambda found: isinstance(found, type) and issubclass(found, base), f"no class derived from {base.__name__}")
        if lacking := sorted(getattr(one, "__abstractmethods__", ())):
            raise ValueError(extensions.INCOMPLETE(entry=_title(entry), lacking=", ".join(lacking), base=base.__name__))
        found.append(one)
    return found


def _load(entry: EntryPoint, fits: Callable[[Any], bool], otherwise: str) -> Any:
    try:
        found = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise ValueError(extensions.NOT_LOADED(entry=_title(entry), kind=type(error).__name__, reason=str(error))) from error
    if not fits(found):
        raise ValueError(extensions.WRONG_KIND(entry=_title(entry), wanted=otherwise, found=type(found).__qualname__))
    return found


def _title(entry: EntryPoint) -> str:
    return f"the entry point {entry.name} = {entry.value} of {entry.group} ({_distribution(entry)})"


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "of no distribution"

"""What other packages add: entry points of a group, each looked at before it is believed. Faults, detectors and schedulers come this way.

[project.entry-points."understudy.faults"]
coffee = "my_package.faults:COFFEE"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TypeGuard, TypeVar

T = TypeVar("T")


def found(group: str, is_one: Callable[[object], TypeGuard[T]], what: str) -> dict[str, T]:
    """By the names of the entry points. Raises `ValueError` for one that cannot be loaded or is no `what`, and for two of the same name."""
    known: dict[str, T] = {}
    for entry in entry_points(group=group):
        try:
            loaded = entry.load()
        except Exception as error:  # whatever it is: it is that package's
            raise ValueError(f"the entry point {entry.name} = {entry.value} of {group} cannot be loaded: {error!r}") from error
        if not is_one(loaded):
            raise ValueError(f"the entry point {entry.name} = {entry.value} of {group} is no {what}")
        if entry.name in known:
            raise ValueError(f"there are two entry points named {entry.name!r} in {group}: one of the packages must go")
        known[entry.name] = loaded
    return known

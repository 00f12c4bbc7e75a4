"""Schedulers by name: ours, and those of other packages, which add them by entry points of the group `understudy.schedulers`."""

from __future__ import annotations

from understudy import extensions
from understudy.schedulers.base import Scheduler
from understudy.schedulers.local import LocalScheduler

GROUP = "understudy.schedulers"


def find(name: str) -> Scheduler:
    """A new one. Ours goes without a look at what is installed. Raises `ValueError` if there is none of this name."""
    if name == LocalScheduler.name:
        return LocalScheduler()
    others = {kind.name: kind for kind in extensions.classes(GROUP, Scheduler)}  # type: ignore[type-abstract]
    if name not in others:
        raise ValueError(f"there is no scheduler {name!r}; there are {', '.join((LocalScheduler.name, *others))}")
    return others[name]()

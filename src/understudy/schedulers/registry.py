"""Schedulers by name: ours, and those of other packages, which add them by entry points of the group `understudy.schedulers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from understudy import extensions
from understudy.schedulers.base import Allocation, Scheduler
from understudy.schedulers.local import LocalScheduler
from understudy.schedulers.slurm.scheduler import SlurmScheduler

GROUP = "understudy.schedulers"
OURS: tuple[type[Scheduler], ...] = (LocalScheduler, SlurmScheduler)


def find(name: str) -> Scheduler:
    """A new one. Ours go without a look at what is installed. Raises `ValueError` if there is none of this name."""
    ours = {kind.name: kind for kind in OURS}
    if name in ours:
        return ours[name]()
    others = {kind.name: kind for kind in extensions.classes(GROUP, Scheduler)}  # type: ignore[type-abstract]
    if name not in others:
        raise ValueError(f"there is no scheduler {name!r}; there are {', '.join((*ours, *others))}")
    return others[name]()


def allocation(name: str, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
    """The one that this process belongs to, of the scheduler of this name; "auto": of whichever says so. `options`: as
    `Scheduler.allocation` has them. Raises `ValueError` and `SchedulerFailed`.
    """
    if name != "auto":
        return find(name).allocation(environment, options)
    others: list[type[Scheduler]] = extensions.classes(GROUP, Scheduler)  # type: ignore[type-abstract]
    for kind in (*OURS, *others):
        if (found := kind().allocation(environment, options)) is not None:
            return found
    return None

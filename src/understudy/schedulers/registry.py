"""Schedulers by name: built-in ones, and those of other packages (entry points of the group `understudy.schedulers`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from understudy import extensions
from understudy.messages import kubernetes_api, schedulers
from understudy.schedulers.base import Allocation, Scheduler
from understudy.schedulers.kubernetes import names as kubernetes
from understudy.schedulers.kubernetes.jobset import JobSetScheduler
from understudy.schedulers.local import LocalScheduler
from understudy.schedulers.slurm.scheduler import SlurmScheduler

GROUP = "understudy.schedulers"


def _kubernetes() -> Scheduler:
    """Create the scheduler. Its client is imported only on demand: that takes a second, and it may not be installed."""
    try:
        from understudy.schedulers.kubernetes.scheduler import KubernetesScheduler
    except ImportError as error:
        raise ValueError(kubernetes_api.NO_CLIENT(reason=str(error))) from error
    return KubernetesScheduler()


OURS: dict[str, Callable[[], Scheduler]] = {
    LocalScheduler.name: LocalScheduler,
    SlurmScheduler.name: SlurmScheduler,
    JobSetScheduler.name: JobSetScheduler,
    kubernetes.NAME: _kubernetes,
}


def find(name: str) -> Scheduler:
    """Create a scheduler. Built-in ones need no search of installed packages. Raises `ValueError` if there is none of this name."""
    if name in OURS:
        return OURS[name]()
    others = {kind.name: kind for kind in extensions.classes(GROUP, Scheduler)}  # type: ignore[type-abstract]
    if name not in others:
        raise ValueError(schedulers.NO_SUCH_SCHEDULER(scheduler=name, known=", ".join((*OURS, *others))))
    return others[name]()


def allocation(name: str, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
    """Return the allocation of this process at the scheduler of this name; "auto": at any scheduler.

    `options`: as in `Scheduler.allocation`. Raises `ValueError` and `SchedulerFailed`.
    """
    if name != "auto":
        return find(name).allocation(environment, options)
    others: list[type[Scheduler]] = extensions.classes(GROUP, Scheduler)  # type: ignore[type-abstract]
    ours = [make for known, make in OURS.items() if known != kubernetes.NAME or kubernetes.JOB_VARIABLE in environment]
    kinds: list[Callable[[], Scheduler]] = [*ours, *others]
    for kind in kinds:
        if (found := kind().allocation(environment, options)) is not None:
            return found
    return None

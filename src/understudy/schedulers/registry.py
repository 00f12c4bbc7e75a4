"""Schedulers by name: ours, and those of other packages, which add them by entry points of the group `understudy.schedulers`."""

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
    """Its client is imported only where it is asked for: that takes a second, and not everybody has it."""
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
    """A new one. Ours go without a look at what is installed. Raises `ValueError` if there is none of this name."""
    if name in OURS:
        return OURS[name]()
    others = {kind.name: kind for kind in extensions.classes(GROUP, Scheduler)}  # type: ignore[type-abstract]
    if name not in others:
        raise ValueError(schedulers.NO_SUCH_SCHEDULER(scheduler=name, known=", ".join((*OURS, *others))))
    return others[name]()


def allocation(name: str, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
    """The one that this process belongs to, of the scheduler of this name; "auto": of whichever says so. `options`: as
    `Scheduler.allocation` has them. Raises `ValueError` and `SchedulerFailed`.
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

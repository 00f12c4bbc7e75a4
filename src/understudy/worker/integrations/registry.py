"""The known integrations."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from understudy.worker.data.loaders import LoaderSource
from understudy.worker.integrations.accelerate import Accelerate
from understudy.worker.integrations.base import Contents, Integration, JobOfTrainer
from understudy.worker.integrations.lightning.takeover import LightningTrainers
from understudy.worker.integrations.trainer import Transformers
from understudy.worker.state.registry import State
from understudy.worker.state.streams import Randomness

_ALL: tuple[type[Integration], ...] = (Accelerate, LightningTrainers, Transformers)


def contents_of(thing: Any) -> Contents | None:
    """Return the contents of an object of a framework; None for any other object. Raises `UsageError`."""
    return next((contents for one in _ALL if (contents := one.contents_of(thing)) is not None), None)


def take_over(name: str, thing: Any, job: JobOfTrainer | None, randomness: Randomness) -> bool:
    """Take over a trainer that is registered under `name`; return False for any other object. Raises `UsageError`."""
    return any(one.take_over(name, thing, job, randomness) for one in _ALL)


def take_over_group(frame: FrameType, join: Callable[[], tuple[JobOfTrainer, State]]) -> bool:
    """Let the job make the process group that is about to be made in `frame`, if a trainer needs it. Raises `UsageError`."""
    return any(one.take_over_group(frame, join) for one in _ALL)


def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource:
    """Return the source of a loop over `loader`. Raises `UsageError`."""
    found = (one.source_of(loader, repeat, randomness) for one in _ALL)
    return next((source for source in found if source is not None), None) or LoaderSource(loader, repeat, randomness)

"""The known integrations."""

from __future__ import annotations

from typing import Any

from understudy.worker.data.loaders import LoaderSource
from understudy.worker.integrations.accelerate import Accelerate
from understudy.worker.integrations.base import Contents, Integration, JobOfTrainer
from understudy.worker.integrations.trainer import Transformers
from understudy.worker.state.streams import Randomness

_ALL: tuple[type[Integration], ...] = (Accelerate, Transformers)


def contents_of(thing: Any) -> Contents | None:
    """Return the contents of an object of a framework; None for any other object. Raises `UsageError`."""
    return next((contents for one in _ALL if (contents := one.contents_of(thing)) is not None), None)


def take_over(name: str, thing: Any, job: JobOfTrainer | None, randomness: Randomness) -> bool:
    """Take over a trainer that is registered under `name`; return False for any other object. Raises `UsageError`."""
    return any(one.take_over(name, thing, job, randomness) for one in _ALL)


def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource:
    """Return the source of a loop over `loader`. Raises `UsageError`."""
    found = (one.source_of(loader, repeat, randomness) for one in _ALL)
    return next((source for source in found if source is not None), None) or LoaderSource(loader, repeat, randomness)

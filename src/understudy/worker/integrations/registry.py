"""The known integrations."""

from __future__ import annotations

from typing import Any

from understudy.worker.data.loaders import LoaderSource
from understudy.worker.integrations.accelerate import Accelerate
from understudy.worker.integrations.base import Contents, Integration
from understudy.worker.state.streams import Randomness

_ALL: tuple[type[Integration], ...] = (Accelerate,)


def contents_of(thing: Any) -> Contents | None:
    """Return the contents of an object of a framework; None for any other object. Raises `UsageError`."""
    return next((contents for one in _ALL if (contents := one.contents_of(thing)) is not None), None)


def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource:
    """Return the source of a loop over `loader`. Raises `UsageError`."""
    found = (one.source_of(loader, repeat, randomness) for one in _ALL)
    return next((source for source in found if source is not None), None) or LoaderSource(loader, repeat, randomness)

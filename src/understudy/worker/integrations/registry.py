"""The known integrations."""

from __future__ import annotations

from typing import Any

from understudy.worker.data.loaders import LoaderSource
from understudy.worker.integrations.accelerate import Accelerate
from understudy.worker.integrations.base import Held, Integration
from understudy.worker.state.streams import Randomness

_ALL: tuple[type[Integration], ...] = (Accelerate,)


def held_by(thing: Any) -> Held | None:
    """Return the contents of an object of a framework; None for any other object. Raises `UsageError`."""
    return next((held for one in _ALL if (held := one.held_by(thing)) is not None), None)


def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource:
    """Return the source of a loop over `loader`. Raises `UsageError`."""
    found = (one.source_of(loader, repeat, randomness) for one in _ALL)
    return next((source for source in found if source is not None), None) or LoaderSource(loader, repeat, randomness)

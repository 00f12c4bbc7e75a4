"""The port to training frameworks: an `Integration` describes what an object of one framework holds, and how its loaders get into position.

A framework that owns a script's model, optimizer and loaders is registered with one line, such as `job.register(accelerator=accelerator)`.
Its integration registers what it holds, and answers for the object itself: the census does not look into `owned` objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from understudy.worker.data.loaders import LoaderSource
from understudy.worker.state.streams import Randomness


@dataclass(frozen=True)
class Contents:
    """The contents of an object of a framework."""

    registered: Mapping[str, Any]  # by name: registered in place of the object
    owned: Sequence[Any]  # objects whose state is among `registered`, or is made again by a newcomer's set-up


class Integration:
    """The integration of one framework. A method that is not overridden finds nothing."""

    @staticmethod
    def contents_of(thing: Any) -> Contents | None:
        """Return the contents of an object of this framework, before the first transaction; None for any other object. All ranks call it at
        the same place, so collectives are allowed. Raises `UsageError` for a configuration that could not be redone.
        """
        return None

    @staticmethod
    def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource | None:
        """Return the source of a loop over a loader of this framework; None for any other loader. Raises `UsageError`."""
        return None

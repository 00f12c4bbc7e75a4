"""A bug that is put into the core or into the model on purpose: one function is replaced by another while the search goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.model.bounds import Bounds
from understudy.core import machine
from understudy.core.state import JobState


@dataclass(frozen=True)
class Bug:
    what: str
    where: Any
    name: str
    instead: Any
    bounds: Bounds
    far: bool = False  # it takes minutes to be found


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The bug is in the code as long as this lasts: in the module and in the machine's table of handlers."""
    original = getattr(bug.where, bug.name)
    handlers = {kind: bug.instead if handler is original else handler for kind, handler in machine._HANDLERS.items()}
    with mock.patch.object(bug.where, bug.name, bug.instead), mock.patch.dict(machine._HANDLERS, handlers):
        yield


def stays(state: JobState) -> None:
    """The node is tainted, and its ranks stay there."""


def nobody(state: JobState, *_: Any) -> list[Any]:
    """Return nothing."""
    return []

"""The port to training frameworks: an `Integration` describes what an object of one framework holds, and how its loaders get into position.

A framework that owns a script's model, optimizer and loaders is registered with one line, such as `job.register(accelerator=accelerator)`.
Its integration registers what it holds, and answers for the object itself: the census does not look into `owned` objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Protocol

from understudy.worker.data.led_loops import LedLoop, Where
from understudy.worker.data.loaders import LoaderSource
from understudy.worker.state.registry import State
from understudy.worker.state.streams import Randomness


@dataclass(frozen=True)
class Contents:
    """The contents of an object of a framework."""

    registered: Mapping[str, Any]  # by name: registered in place of the object
    owned: Sequence[Any]  # objects whose state is among `registered`, or is made again by a newcomer's set-up


class OpenedTransaction(Protocol):
    """A transaction that an integration continues and commits (`job.begin`)."""

    @property
    def passed(self) -> bool: ...

    @property
    def result(self) -> Any: ...

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...

    def commit(self, result: Any = None) -> None: ...


class JobOfTrainer(Protocol):
    """The part of a job that an integration needs which takes a trainer over."""

    @property
    def newcomer(self) -> bool: ...

    @property
    def committed(self) -> int: ...

    def register(self, *, owns: Any = (), **objects: Any) -> None: ...

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]: ...

    def section(self, function: Callable[..., Any]) -> Callable[..., Any]: ...

    def begin(self, name: str, kind: Literal["step", "section"] = "step") -> OpenedTransaction: ...

    def lead(self, position: Callable[[], Any], go_to: Callable[[Any], None]) -> LedLoop: ...

    def where(self) -> Where: ...


class Integration:
    """The integration of one framework. A method that is not overridden finds nothing."""

    @staticmethod
    def contents_of(thing: Any) -> Contents | None:
        """Return the contents of an object of this framework, before the first transaction; None for any other object. All ranks call it at
        the same place, so collectives are allowed. Raises `UsageError` for a configuration that could not be redone.
        """
        return None

    @staticmethod
    def take_over(name: str, thing: Any, job: JobOfTrainer | None, randomness: Randomness) -> bool:
        """Take over the training of a trainer of this framework, which registers its contents under `name` when it has made them; return
        False for any other object. `job`: None where nothing has to be redone, so that the trainer is left as it is. Raises `UsageError`.
        """
        return False

    @staticmethod
    def take_over_group(frame: FrameType, join: Callable[[], tuple[JobOfTrainer, State]]) -> bool:
        """Let the job make the process group that code of this framework is about to make in `frame`, for a trainer that it will train;
        return False if there is none. Raises `UsageError` for a trainer that is not supported.
        """
        return False

    @staticmethod
    def source_of(loader: Any, repeat: bool, randomness: Randomness) -> LoaderSource | None:
        """Return the source of a loop over a loader of this framework; None for any other loader. Raises `UsageError`."""
        return None

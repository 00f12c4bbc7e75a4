"""What a scheduler is: it starts what leads a job and what serves its nodes, ends them, and says how they stand.

Policy is not its affair: whether something that ended is started again, and when a job is over, the command line decides
(`cli.supervisor`). Other packages add schedulers (`registry`); whoever writes one needs this module and no other of ours.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Work:
    """A process of ours that is to run. `environment`: beside the one that is there."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()  # that it inherits; who starts it on another machine cannot give it any, and refuses


@dataclass(frozen=True)
class Ended:
    how: str  # in words
    killed: bool  # by a signal, so that it did not end by itself


class Running(Protocol):
    """Something that a scheduler has started."""

    def fileno(self) -> int:
        """A descriptor that can be read as soon as it has ended."""
        ...

    def ended(self) -> Ended | None:
        """None while it runs."""
        ...

    def signal(self, number: signal.Signals) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Whether it ends within so many."""
        ...

    def close(self) -> None:
        """Nobody looks at it any more."""
        ...


class Scheduler(ABC):
    """A name is free again when what had it has ended."""

    name: str

    @abstractmethod
    def submit(self, job: Work) -> Running:
        """Starts what leads a job: its orchestrator. Raises `ValueError` if the name is taken, `OSError` if it cannot be started."""

    @abstractmethod
    def add_node(self, node: Work) -> Running:
        """Starts what serves a node: its agent. Raises the same."""

    @abstractmethod
    def drain_node(self, name: str) -> None:
        """Asks what serves a node to end, in order: it ends its workers first. Raises `KeyError` if there is no such node."""

    @abstractmethod
    def status(self) -> Mapping[str, str]:
        """How all that it has started stand, by name: "running", or how they ended."""

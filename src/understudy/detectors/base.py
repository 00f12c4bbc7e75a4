"""The port to detectors: each turns something seen into evidence. What follows from evidence others decide.

A detector looks at a job every `every` seconds, on the host of its orchestrator. One of ours judges what it is fed (`hang`). One of
another package is named by an entry point of the group `understudy.detectors`, is made without arguments and looks by itself, on a
thread of its own: it may ask a file, a program or a server. One that raises is told about and left out from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

GROUP = "understudy.detectors"


class Subject(StrEnum):
    """What evidence speaks against."""

    WORKER = "worker"
    NODE = "node"


class Severity(StrEnum):
    NOTE = "note"  # a person should know
    SUSPECT = "suspect"  # of a node: no rank and no spare is placed there any more, and its ranks may be moved
    LOST = "lost"  # of a worker: it is ended, and its rank goes to a spare


@dataclass(frozen=True)
class Evidence:
    detector: str
    subject: Subject
    name: str  # of the worker, of the node
    severity: Severity
    detail: str  # what was seen, for a person
    happened: float  # unix time


@dataclass(frozen=True)
class JobView:
    """A job as its orchestrator sees it."""

    now: float  # unix time
    ranks: Mapping[int, str]  # the worker of each rank
    idle: Collection[str] = ()  # workers that hold none
    nodes: Mapping[str, str] = field(default_factory=dict)  # the node of each worker
    steps: Mapping[str, int] = field(default_factory=dict)  # committed steps of each worker, as far as known


class Detector(ABC):
    name: str
    every: float = 1.0  # seconds between two looks

    @abstractmethod
    def look(self, job: JobView) -> Iterable[Evidence]:
        """What speaks against what at this moment. The same evidence may be given again: it is acted upon once."""

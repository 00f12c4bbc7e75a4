"""The port to detectors: each turns something seen into evidence. What follows from evidence others decide.

A `Detector` looks at a job every `every` seconds, on the host of its orchestrator; a `NodeDetector` at the node that it runs on, in the
node's agent. Two of ours judge what they are fed (`hang`, `straggler`). One of another package is named by an entry point of the group
`understudy.detectors`, is made without arguments and looks by itself, on a thread of its own: it may ask a file, a program or a server. One
that raises, or takes too long, is told about and left out from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

GROUP = "understudy.detectors"
LEFT_OUT = "detector-left-out"  # kind of evidence of a detector about itself only: it has raised, hung or flooded


class Subject(StrEnum):
    """What evidence speaks against."""

    WORKER = "worker"
    NODE = "node"
    DEVICE = "device"  # of a node: an accelerator, a disk, memory
    LINK = "link"  # of a node: an adapter, or what it is connected by


class Severity(StrEnum):
    NOTE = "note"  # a person should know
    SUSPECT = "suspect"  # of a node, or of a part of it: no rank and no spare is placed there any more, and its ranks may be moved
    LOST = "lost"  # of a worker: it is ended, and its rank goes to a spare


@dataclass(frozen=True)
class Evidence:
    detector: str
    subject: Subject
    name: str  # of the worker, of the node; of a device or a link: of its node
    severity: Severity
    detail: str  # what was seen, for a person
    happened: float  # unix time
    kind: str = ""  # what was seen, for a rule: "xid-79", "ecc-uncorrected"; of one detector always the same for the same thing
    part: str = ""  # of a device or a link: which, as its node calls it: "gpu3", "nvme0n1", "eth0"
    until: float = 0.0  # unix time from which on it says nothing any more; 0: it does not wear off


@dataclass(frozen=True)
class JobView:
    """A job as its orchestrator sees it."""

    now: float  # unix time
    ranks: Mapping[int, str]  # the worker of each rank
    idle: Collection[str] = ()  # workers that hold none
    nodes: Mapping[str, str] = field(default_factory=dict)  # the node of each worker
    steps: Mapping[str, int] = field(default_factory=dict)  # committed steps of each worker, as far as known
    roles: Sequence[int] = ()  # by rank: alike for those that hold the same or shards of the same; empty: not known yet
    generation: int = 0
    steady: bool = True  # all ranks train, none of them moves, and none is drilled


class AnyDetector(ABC):
    name: str
    every: float = 1.0  # seconds between two looks


class NodeDetector(AnyDetector):
    """Looks at the node that it runs on, in its agent, on a thread of its own. Made without arguments."""

    limit: float = 30.0  # seconds that a look may take: a detector that takes longer is left out, and told about
    reading: str = ""  # the device that the present look asks, as in `Evidence.part`: if the look hangs there, it is suspected. Reset it

    @classmethod
    def missing(cls) -> str:
        """Why there is nothing here that it could look at, for a person; "" if there is."""
        return ""

    @abstractmethod
    def look(self) -> Iterable[Evidence]:
        """What speaks against this node, or a part of it, at this moment. `name` of what it gives is "": the agent knows its node. The
        same evidence may be given again: it is acted upon once. Raises what it likes: that speaks against the detector.

        What does not wear off (`until` is 0), or not yet, is remembered by the agent and told for as long as it holds, also if it is
        never given again. It is over when the same kind and part is given with an `until` that has passed.
        """

    def close(self) -> None:
        """Nothing is wanted any more. Called once, on another thread, also while a look is under way: that should end soon then."""


class Detector(AnyDetector):
    """Looks at a job, on the host of its orchestrator. Made without arguments."""

    @abstractmethod
    def look(self, job: JobView) -> Iterable[Evidence]:
        """What speaks against what at this moment. The same evidence may be given again: it is acted upon once."""

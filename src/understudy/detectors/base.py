"""The port to detectors: each reports evidence. Others decide what follows from it.

A `Detector` looks at a job every `every` seconds, on the host of its orchestrator; a `NodeDetector` at the node that it runs on, in the
node's agent. Two of ours are given their readings (`hang`, `straggler`). A detector of another package is named by an entry point of the
group `understudy.detectors`, is created without arguments, and looks on its own thread: it may read a file, run a program or query a
server. A detector that raises, or takes too long, is reported and left out from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

GROUP = "understudy.detectors"
LEFT_OUT = "detector-left-out"  # kind of evidence of a detector about itself only: it has raised, hung, or reported too much


class Subject(StrEnum):
    """What evidence is directed against."""

    WORKER = "worker"
    NODE = "node"
    DEVICE = "device"  # of a node: an accelerator, a disk, memory
    LINK = "link"  # of a node: an adapter, or its connection


class Severity(StrEnum):
    NOTE = "note"  # information for a person
    SUSPECT = "suspect"  # of a node, or of a part of it: it gets no more ranks and spares, and its ranks may be moved
    LOST = "lost"  # of a worker: it is ended, and its rank goes to a spare


@dataclass(frozen=True)
class Evidence:
    detector: str
    subject: Subject
    name: str  # of the worker or of the node; for a device or a link: of its node
    severity: Severity
    detail: str  # the observation, for a person
    happened: float  # unix time
    kind: str = ""  # the observation, for a rule: "xid-79", "ecc-uncorrected"; a detector uses the same kind for the same thing
    part: str = ""  # of a device or a link: its name on its node: "gpu3", "nvme0n1", "eth0"
    until: float = 0.0  # unix time until which it is valid; 0: it does not wear off


@dataclass(frozen=True)
class JobView:
    """A job as its orchestrator sees it."""

    now: float  # unix time
    ranks: Mapping[int, str]  # the worker of each rank
    idle: Collection[str] = ()  # workers without a rank
    nodes: Mapping[str, str] = field(default_factory=dict)  # the node of each worker
    steps: Mapping[str, int] = field(default_factory=dict)  # committed steps of each worker, as far as known
    roles: Sequence[int] = ()  # by rank: equal for ranks that have the same state or shards of it; empty: not known yet
    generation: int = 0
    steady: bool = True  # all ranks train, none of them moves, and none is drilled


class AnyDetector(ABC):
    name: str
    every: float = 1.0  # seconds between two looks


class NodeDetector(AnyDetector):
    """Look at the node that this runs on, in its agent, on its own thread. Created without arguments."""

    limit: float = 30.0  # seconds that a look may take: a detector that takes longer is left out, and reported
    reading: str = ""  # the device that the present look reads, as in `Evidence.part`: if the look hangs, that device is suspect. Reset it

    @classmethod
    def missing(cls) -> str:
        """Return why this detector has nothing to look at here, for a person; "" if it has."""
        return ""

    @abstractmethod
    def look(self) -> Iterable[Evidence]:
        """Return the evidence against this node, or a part of it, at this time. Its `name` is "": the agent knows its node. The
        same evidence may be returned again: it is acted upon once. May raise anything: that counts against the detector.

        The agent remembers evidence that does not wear off (`until` is 0), or has not yet, and reports it for as long as it is valid, even
        if it is never returned again. It is over when the same kind and part is returned with an `until` that has passed.
        """

    def close(self) -> None:
        """Stop looking. Called once, on another thread, perhaps during a look: that should end soon then."""


class Detector(AnyDetector):
    """Look at a job, on the host of its orchestrator. Created without arguments."""

    @abstractmethod
    def look(self, job: JobView) -> Iterable[Evidence]:
        """Return the evidence at this time. The same evidence may be returned again: it is acted upon once."""

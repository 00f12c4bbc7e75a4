"""What a scheduler is: it starts what leads a job and what serves its nodes, ends them, and says how they stand. And what it has given to
one job (`Allocation`): its machines, with what the scheduler knows of them.

Policy is not its affair: whether something that ended is started again, and when a job is over, the command line decides
(`cli.supervisor`). Other packages add schedulers (`registry`); whoever writes one needs this module and no other of ours.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True)
class Work:
    """A process of ours that is to run. `environment`: beside the one that is there."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()  # that it inherits; who starts it on another machine cannot give it any, and refuses
    reads: bool = False  # the standard input of the process that starts it


@dataclass(frozen=True)
class Ended:
    how: str  # in words
    killed: bool  # by a signal, so that it did not end by itself
    code: int | None = None  # its exit code, where that is known


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

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        """The one that this process belongs to, as its environment says; None: it belongs to none of this scheduler's. `options`: the
        scheduler's own, for nodes that are claimed. Raises `ValueError` if it was started in a way that cannot work, with what to do.
        """
        return None


class SchedulerFailed(Exception):
    """It does not answer, or refuses: the text says what was asked of it and what it said."""


class SchedulerAway(SchedulerFailed):
    """It may go well another time: what was asked for is asked for again."""


@dataclass(frozen=True)
class ClaimedNode:
    """A node that was asked for beside those of the job, and has not been given back as far as is known."""

    over: bool = False  # the scheduler has ended it, or could not give it
    node: str = ""
    detail: str = ""  # of its end, or of why it waits


@dataclass(frozen=True)
class Place:
    """Where this process is among those that a scheduler has started for one job, one on each of its nodes."""

    scheduler: str
    job: str  # as the scheduler calls it; of a run that was started anew another one
    nodes: tuple[str, ...]  # as the scheduler calls them; their places here are their node ranks
    number: int  # of this node
    addresses: tuple[str, ...]  # of the first nodes, of as many as may run an orchestrator
    ports: tuple[int, ...]  # one for each of these, which no other job of this scheduler uses
    labels: tuple[tuple[str, str], ...] = ()  # of this node's place in the network


TAKEN = "taken"  # trouble of a node that the scheduler has taken from the job: whatever runs there may be ended at any moment


@dataclass(frozen=True)
class NodeSeen:
    """A node as its scheduler has it."""

    name: str
    state: str  # in the scheduler's own words
    trouble: str = ""  # what speaks against it, always the same word for the same thing; "": nothing
    suspect: bool = False  # work should leave it
    reason: str = ""  # what is said there, by whom and since when, for a person
    since: float = 0.0  # unix time; 0: not known
    labels: tuple[tuple[str, str], ...] = ()  # of its place in the network, if the scheduler knows it (`core.topology`)


@dataclass(frozen=True)
class ShownIncident:
    """An incident that is over, for whoever looks at the job with the scheduler's own commands."""

    number: int
    planned: bool
    text: str
    at: float  # unix time


@dataclass(frozen=True)
class JobSummary:
    """How the job stands."""

    phase: str
    step: int
    generation: int
    complete: bool  # whether the nodes of all ranks have joined, so that a node that comes now is a spare one
    ranks: tuple[str, ...]  # by rank, the node of its holder; "": vacant
    spares: int  # that are warm
    lost: tuple[str, ...]  # nodes
    tainted: tuple[str, ...]  # nodes that are not trusted
    incidents: tuple[ShownIncident, ...]
    exit_code: int | None  # None: it is not over
    message: str  # why it is over
    text: str  # what has become of it, in a line
    devices: tuple[str, ...] = ()  # by rank, the device that its holder computes on; "": it has none, or none is known

    def besides_step(self) -> JobSummary:
        return replace(self, step=0)


class Allocation(ABC):
    """The machines of one job, as their scheduler has them. Every call may take seconds, and raises `SchedulerFailed`."""

    place: Place

    @abstractmethod
    def share(self, secret: str) -> None:
        """Gives the job's secret to its other nodes, and to nobody else. Called on the first one."""

    @abstractmethod
    def shared(self, seconds: float) -> str:
        """What the first node has shared. Waits for it; raises if it does not come."""

    @abstractmethod
    def look(self) -> Sequence[NodeSeen]:
        """All nodes of the job that it has not given back, at this moment; those that were `TAKEN` from it, too."""

    @abstractmethod
    def record(self, text: str) -> None:
        """Where people look for it with the scheduler's own commands: what has become of the job."""

    def show(self, now: JobSummary) -> None:
        """The same, for schedulers that have more room for it than a line. Called once a second."""
        return

    def cancelled(self) -> str:
        """Why the job is to end, as was seen at the last look: somebody has said so there; "": nobody has."""
        return ""

    def close(self) -> None:
        """It is not asked any more."""
        return

    @abstractmethod
    def release(self, nodes: Collection[str], text: str) -> Sequence[str]:
        """Ends what is left of the job on these nodes, and gives them back at once, with what is recorded from then on. Gives those that
        it could do this with: one that is gone cannot be reached.
        """

    @abstractmethod
    def drain(self, nodes: Collection[str], reason: str) -> None:
        """Lets nobody's work go there any more. Few may do that."""

    def check_claims(self) -> None:
        """Raise `ValueError`, with what to do, if no node can be claimed that is like those of the job."""
        return

    @abstractmethod
    def claim(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        """Asks for a node on which `work` is to run: none of those in `avoid`, and rather one that is in the network near to the node
        `near`. `text`: why, for people. Raises `SchedulerAway` if it may be asked for again; the same number twice gives one node.
        """

    @abstractmethod
    def claims(self) -> Mapping[int, ClaimedNode]:
        """What was asked for so, by number, by this orchestrator or by one before it."""

    @abstractmethod
    def give_back(self, number: int) -> None:
        """What was asked for under this number is not needed any more: what runs there is to end, in order."""

    @abstractmethod
    def give_all_back(self) -> None:
        """If the scheduler has ended the job: everything that was asked for so."""

    @abstractmethod
    def record_claim(self, number: int, text: str) -> None:
        """As `record`, where people look for what runs on that node."""

    @abstractmethod
    def finish(self, missing: Collection[str]) -> None:
        """The job is over, and these of its nodes are lost. Ends what nobody else would end."""

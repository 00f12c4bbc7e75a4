"""The interface of a scheduler: it starts orchestrators and agents, ends them, and reports their state. And of an `Allocation`: the
machines that it has given to one job, with its information about them.

A scheduler has no policy: the command line decides whether a process is restarted, and when a job is over (`cli.supervisor`). Other
packages may add schedulers (`registry`); their authors need only this module.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True)
class Work:
    """A process to run. `environment`: variables in addition to the existing ones."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()  # descriptors that it inherits; a scheduler of other machines cannot pass any, and rejects them
    reads: bool = False  # whether it reads the standard input of the process that starts it


@dataclass(frozen=True)
class Ended:
    how: str  # as text
    killed: bool  # by a signal, so it did not end by itself
    code: int | None = None  # its exit code, if known


class Running(Protocol):
    """A process that a scheduler has started."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has ended."""
        ...

    def ended(self) -> Ended | None:
        """Return how it ended; None while it runs."""
        ...

    def signal(self, number: signal.Signals) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Wait for its end for this time; return whether it has ended."""
        ...

    def close(self) -> None:
        """Release the resources of this object; the process goes on."""
        ...


class Scheduler(ABC):
    """Starts processes by name. A name can be reused when its process has ended."""

    name: str

    @abstractmethod
    def submit(self, job: Work) -> Running:
        """Start an orchestrator. Raises `ValueError` if the name is taken, `OSError` if it cannot be started."""

    @abstractmethod
    def add_node(self, node: Work) -> Running:
        """Start the agent of a node. Raises the same."""

    @abstractmethod
    def drain_node(self, name: str) -> None:
        """Ask the agent of a node to end in order: it ends its workers first. Raises `KeyError` if there is no such node."""

    @abstractmethod
    def status(self) -> Mapping[str, str]:
        """Return the state of everything that it has started, by name: "running", or how it ended."""

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        """Return the allocation to which this process belongs according to its environment; None if it is in none of this scheduler's.

        `options`: the scheduler's own options for claimed nodes. Raises `ValueError`, with the remedy, if the process was started in a way
        that cannot work.
        """
        return None


class SchedulerFailed(Exception):
    """The scheduler does not answer, or rejects a request. The text has the request and the answer."""


class SchedulerAway(SchedulerFailed):
    """The scheduler is not available. The request will be repeated."""


@dataclass(frozen=True)
class ClaimedNode:
    """A node that was claimed in addition to those of the job, and has not been given back as far as is known."""

    over: bool = False  # the scheduler has ended it, or could not provide it
    node: str = ""
    detail: str = ""  # why it ended, or why it is pending


@dataclass(frozen=True)
class Place:
    """The place of this process among those that a scheduler has started for one job, one on each of its nodes."""

    scheduler: str
    job: str  # its name at the scheduler; a run that was started again from scratch has another one
    nodes: tuple[str, ...]  # names at the scheduler; the index is the node rank
    number: int  # of this node
    addresses: tuple[str, ...]  # of the first nodes, as many as may run an orchestrator
    ports: tuple[int, ...]  # one for each of these, which no other job of this scheduler uses
    labels: tuple[tuple[str, str], ...] = ()  # of this node's place in the network


TAKEN = "taken"  # trouble of a node that the scheduler has taken from the job: processes there may be ended at any moment


@dataclass(frozen=True)
class NodeSeen:
    """A node as reported by its scheduler."""

    name: str
    state: str  # in the scheduler's own terms
    trouble: str = ""  # the kind of evidence against it, a fixed word for each; "": none
    suspect: bool = False  # ranks should leave it
    reason: str = ""  # the scheduler's explanation, with source and time, as text
    since: float = 0.0  # unix time; 0: unknown
    labels: tuple[tuple[str, str], ...] = ()  # of its place in the network, if the scheduler knows it (`core.topology`)


@dataclass(frozen=True)
class ShownIncident:
    """A closed incident, for readers of the scheduler's own commands."""

    number: int
    planned: bool
    text: str
    at: float  # unix time


@dataclass(frozen=True)
class JobSummary:
    """The state of a job."""

    phase: str
    step: int
    generation: int
    complete: bool  # whether the nodes of all ranks have joined, so that a new node is a spare one
    ranks: tuple[str, ...]  # by rank, the node of its holder; "": vacant
    spares: int  # number of warm spares
    lost: tuple[str, ...]  # nodes
    tainted: tuple[str, ...]  # nodes that are not trusted
    incidents: tuple[ShownIncident, ...]
    exit_code: int | None  # None: it is not over
    message: str  # why it is over
    text: str  # the state in one line
    devices: tuple[str, ...] = ()  # by rank, the device of its holder; "": none, or unknown

    def without_step(self) -> JobSummary:
        return replace(self, step=0)


class Allocation(ABC):
    """The machines of one job at their scheduler. Every call may take seconds, and raises `SchedulerFailed`."""

    place: Place

    @abstractmethod
    def share(self, secret: str) -> None:
        """Give the job's secret to its other nodes, and to no other process. Called on the first one."""

    @abstractmethod
    def shared(self, seconds: float) -> str:
        """Wait for the secret that the first node shares, and return it. Raises if it does not arrive in time."""

    @abstractmethod
    def look(self) -> Sequence[NodeSeen]:
        """Return all current nodes of the job that it has not given back, including those that were `TAKEN` from it."""

    @abstractmethod
    def record(self, text: str) -> None:
        """Record the state of the job where users of the scheduler's own commands see it."""

    def show(self, now: JobSummary) -> None:
        """Show the state in more detail, for schedulers with room for more than a line. Called once a second."""
        return

    def cancelled(self) -> str:
        """Return why the job must end, according to the last `look`: it was cancelled at the scheduler; "": it was not."""
        return ""

    def close(self) -> None:
        """Release the resources of this object."""
        return

    @abstractmethod
    def release(self, nodes: Collection[str], text: str) -> Sequence[str]:
        """End the rest of the job on these nodes, and give them back at once; `text` is recorded from then on.

        Return the nodes for which this succeeded: one that is gone cannot be reached.
        """

    @abstractmethod
    def drain(self, nodes: Collection[str], reason: str) -> None:
        """Let no work of any user start there. Few accounts have the right."""

    def check_claims(self) -> None:
        """Raise `ValueError`, with the remedy, if no node like those of the job can be claimed."""
        return

    @abstractmethod
    def claim(self, number: int, work: Work, avoid: Collection[str], near: str, text: str) -> None:
        """Claim a node to run `work`, none of those in `avoid`, and preferably near the node `near` in the network.

        `text`: the reason, for users. Raises `SchedulerAway` if the request may be repeated; the same number twice gives one node.
        """

    @abstractmethod
    def claims(self) -> Mapping[int, ClaimedNode]:
        """Return the claims of this orchestrator and of those before it, by number."""

    @abstractmethod
    def give_back(self, number: int) -> None:
        """Give back the node of this claim: its processes must end in order."""

    @abstractmethod
    def give_all_back(self) -> None:
        """Give back all claims, if the scheduler has ended the job."""

    @abstractmethod
    def record_claim(self, number: int, text: str) -> None:
        """Record the state where users see it for the node of this claim, as `record` does."""

    @abstractmethod
    def finish(self, missing: Collection[str]) -> None:
        """Finish after the end of the job: end what else would not end. `missing`: its lost nodes."""

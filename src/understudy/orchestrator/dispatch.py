"""Which commands go where, and which of them wait for the journal: rules without a network, so that a simulator runs the same ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from understudy.core.commands import Assign, Command, EndJob, Prepare, Recover, SetTimer, StartWorker, Tell
from understudy.core.events import Believed, Event
from understudy.core.state import Worker


@dataclass(frozen=True)
class Decision:
    """What the machine has decided on one event."""

    at_once: list[Command]
    when_written: list[Command]  # only when the journal has the event: it could not be understood by the next orchestrator otherwise


def decision(event: Event, commands: list[Command], strict: bool) -> Decision:
    """`strict`: the journal is shared by several orchestrators."""
    if isinstance(event, Believed):  # what a person has said is not heard again
        return Decision([], commands)
    return Decision([c for c in commands if not decides(c, strict)], [c for c in commands if decides(c, strict)])


def decides(command: Command, strict: bool) -> bool:
    """Whether it must not be sent before it is written: it says who is which rank, or can be no other, what is redone, or that it
    is over."""
    first = isinstance(command, Assign) and not command.newcomer
    return first or isinstance(command, Prepare | Recover) or (strict and isinstance(command, EndJob))


@dataclass(frozen=True)
class Outgoing:
    """Commands by who carries them out, each in its order. Nodes need not hear of anything in the same order as each other."""

    here: list[Tell | SetTimer | EndJob] = field(default_factory=list)
    for_nodes: dict[str, list[Command]] = field(default_factory=dict)


def addressed(commands: list[Command], workers: Mapping[str, Worker], connected: Collection[str]) -> Outgoing:
    """`connected`: nodes that hear of the job's end."""
    found = Outgoing()
    for command in commands:
        if isinstance(command, Tell | SetTimer | EndJob):
            found.here.append(command)
            nodes = connected if isinstance(command, EndJob) else ()
        else:
            nodes = [command.node if isinstance(command, StartWorker) else workers[command.worker].node]
        for node in nodes:
            found.for_nodes.setdefault(node, []).append(command)
    return found

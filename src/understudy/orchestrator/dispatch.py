"""Decide which commands are sent when, and to which node. Rules only: no I/O, no clock.

A decision changes the state of workers. The next orchestrator could not understand one that is not in the journal, so it is sent when it is
written, however long that takes. A request of an operator is not repeated, so none of its commands is sent before it is written. All other
commands are sent at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from understudy.core.commands import (
    Assign,
    CheckNode,
    ClaimNode,
    Command,
    Drill,
    EndJob,
    GiveBackNode,
    Prepare,
    Record,
    Recover,
    SetTimer,
    StartWorker,
    Tell,
)
from understudy.core.events import Believed, Event


def split(event: Event, commands: Sequence[Command], *, strict: bool) -> tuple[list[Command], list[Command]]:
    """Split the commands of `event` into those that are sent at once, and those that are sent when the event is in the journal.

    `strict`: the end of the job waits for the journal, too.
    """
    everything = isinstance(event, Believed)
    later = [command for command in commands if everything or _decides(command, strict)]
    return ([command for command in commands if not (everything or _decides(command, strict))] if later else list(commands)), later


def _decides(command: Command, strict: bool) -> bool:
    """Return whether the command is a decision.

    It assigns a rank, makes a worker unfit for other ranks or (a drill) for any, decides on a redo, claims a node (a number is used
    once), or ends the job.
    """
    first = isinstance(command, Assign) and not command.newcomer
    return first or isinstance(command, Prepare | Drill | Recover | ClaimNode) or (strict and isinstance(command, EndJob))


@dataclass
class Dispatch:
    """Commands by recipient, each in the order in which they were given. There is no order between nodes."""

    texts: list[str] = field(default_factory=list)  # for the user
    timers: list[SetTimer] = field(default_factory=list)
    for_scheduler: list[ClaimNode | GiveBackNode] = field(default_factory=list)
    for_nodes: dict[str, list[Command]] = field(default_factory=dict)
    ends: bool = False  # the job has ended

    @staticmethod
    def of(commands: Iterable[Command], node_of: Callable[[str], str], connected: Collection[str]) -> Dispatch:
        """Sort commands by recipient. `node_of`: the node of a worker. The end of the job goes to all nodes in `connected`."""
        found = Dispatch()
        for command in commands:
            if isinstance(command, Record):  # the service submits it
                continue
            if isinstance(command, Tell):
                found.texts.append(command.text)
            elif isinstance(command, SetTimer):
                found.timers.append(command)
            elif isinstance(command, ClaimNode | GiveBackNode):
                found.for_scheduler.append(command)
            elif isinstance(command, EndJob):
                for node in connected:
                    found.for_nodes.setdefault(node, []).append(command)
                found.ends = True
            else:
                node = command.node if isinstance(command, StartWorker | CheckNode) else node_of(command.worker)
                found.for_nodes.setdefault(node, []).append(command)
        return found

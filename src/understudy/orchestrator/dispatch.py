"""What is sent when, and to whom? Rules only: no I/O, no clock.

A decision changes what workers are; one that is not in the journal could not be understood by the next orchestrator, so it is sent when
it is written, however long that takes. What a person has said is not heard again, so nothing that comes of it goes out before. All else
goes out at once.
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
    """Of what was decided because of `event`: what is sent at once, and what is sent when the event is in the journal. `strict`: the end
    of the job waits for the journal, too.
    """
    everything = isinstance(event, Believed)
    later = [command for command in commands if everything or _decides(command, strict)]
    return ([command for command in commands if not (everything or _decides(command, strict))] if later else list(commands)), later


def _decides(command: Command, strict: bool) -> bool:
    """It says who is which rank, or can be no other or (a drill) none any more, what is redone, which node is claimed (a number is used
    once), or that it is over.
    """
    first = isinstance(command, Assign) and not command.newcomer
    return first or isinstance(command, Prepare | Drill | Recover | ClaimNode) or (strict and isinstance(command, EndJob))


@dataclass
class Dispatch:
    """Commands by whom they are for, each in the order in which they were given. Nodes need not hear of anything in the same order as
    each other.
    """

    texts: list[str] = field(default_factory=list)  # for the user
    timers: list[SetTimer] = field(default_factory=list)
    for_scheduler: list[ClaimNode | GiveBackNode] = field(default_factory=list)
    for_nodes: dict[str, list[Command]] = field(default_factory=dict)
    ends: bool = False  # the job has ended

    @staticmethod
    def of(commands: Iterable[Command], node_of: Callable[[str], str], connected: Collection[str]) -> Dispatch:
        """`node_of`: a worker's. The end of the job goes to all that are `connected`."""
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

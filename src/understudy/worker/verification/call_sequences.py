"""Condenses what a rank issues on each group to one number that grows with every collective. No rank waits, so this is enough only after a
drill has passed.

The numbers of all members of a group are compared with the vote, so a rank that has issued something else is found before anything is
committed, unless the library has ended a process before. The number contains what must be alike on all members (`announcements`);
messages between two ranks are left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ProcessGroup

from understudy.worker.collectives.interception import BETWEEN_TWO, Collective, Kernels, ranks_of, shapes
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.encoding.messages import Announced, CallSequences
from understudy.worker.verification.announcements import announce


@dataclass(frozen=True)
class Lane:
    """A group of two or more, within which every member issues the same collectives in the same order."""

    name: str  # as every member has it
    shown: str  # for a person
    ranks: list[int]


class Lanes:
    """The lanes of the groups of this process. From any thread."""

    def __init__(self) -> None:
        self._known: dict[ProcessGroup, Lane | None] = {}

    def of(self, group: ProcessGroup) -> Lane | None:
        """Return the lane of `group`. None: there is no other member to agree with, or the members are unknown."""
        if group not in self._known:
            ranks, name = ranks_of(group), str(group.group_name)
            few = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
            lane = Lane(f"{name}|{digest_bytes(str(ranks).encode()):016x}", f"group {name!r} of ranks {few}", ranks)
            self._known[group] = lane if len(ranks) > 1 else None
        return self._known[group]


def announced(collective: Collective, who: tuple[int, str]) -> Announced:
    """Return what `who`, a rank and its worker, announces of its call."""
    plain: dict[str, Any] = {}
    for name, value in collective.arguments.items():
        if isinstance(value, torch.ScriptObject):
            if name == "reduce_op":
                plain[name] = int(value.op())  # type: ignore[attr-defined]
        elif isinstance(value, int) or (isinstance(value, list | tuple) and all(isinstance(item, int) for item in value)):
            plain[name] = value
    group = collective.group
    return announce(who, collective.operator, plain, shapes(collective.inputs), shapes(collective.outputs), group.rank(), group.size())


class Sequences(Kernels):
    def __init__(self, who: tuple[int, str]) -> None:
        super().__init__()
        self._who = who
        self._lanes = Lanes()
        self._found: dict[str, tuple[list[int], int, int]] = {}
        self._lock = threading.Lock()

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        lane = self._lanes.of(collective.group)
        if lane is not None and collective.operator not in BETWEEN_TWO:
            this = announced(collective, self._who)
            described = f"{this.operator} {this.settings} {this.alike}".encode()
            with self._lock:
                _, count, before = self._found.get(lane.name, (lane.ranks, 0, 0))
                self._found[lane.name] = lane.ranks, count + 1, digest_bytes(before.to_bytes(8, "little") + described)
        return operate()

    def message(self) -> CallSequences:
        return CallSequences(self._who[1], dict(self._found))

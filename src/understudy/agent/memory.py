"""Decide whether there is memory for one more spare. `common.room` measures the free memory.

A spare has the footprint of a warm worker. It grows to that of a rank only when it takes one over, and then into the memory that the lost
worker leaves; so the warm footprint and a reserve must be free. On a GPU the same holds for device memory, which a warm worker does not
use.
"""

from __future__ import annotations

import psutil

from understudy.common.room import Room
from understudy.messages import agents

FIRST_GUESS = 512 << 20  # a warm worker's footprint, before one has been measured
RESERVE = 256 << 20


def refusal(footprint: int | None, now: Room) -> str | None:
    """Return why a spare should not be started, or None. `footprint`: the largest of the warm workers measured so far."""
    needed = max(FIRST_GUESS, footprint or 0)
    if now.available >= needed + RESERVE:
        return None
    free, total = _gib(now.available), _gib(now.total)
    return agents.NO_ROOM_FOR_SPARE(needed=_gib(needed), reserve=_gib(RESERVE), free=free, total=total, limited_by=now.limited_by)


def footprint(pid: int) -> int | None:
    """Return the bytes that a process shares with no other; None if it is gone."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except psutil.Error:
        return None


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"

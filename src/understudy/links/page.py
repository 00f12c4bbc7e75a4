"""The page of a worker: a small file mapped by the worker, which writes, and by its agent, which reads.

It shows progress without a system call on the training path, and it outlives its worker: where a killed process stood
is still there to read. Fields are aligned 8-byte values, so a reader may see a new field beside an old one but never
half of a field.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_MAGIC = 0x79647473_72646E75
_LAYOUT = struct.Struct("<QQdqqqdQd")
SIZE = 4096


class Activity(IntEnum):
    WARMING = 0
    WARM = 1
    SETUP = 2  # runs the script up to its first transaction
    IDLE = 3  # between transactions
    RUNNING = 4
    VOTED = 5
    COMMITTING = 6  # past the vote
    RECOVERING = 7
    FINISHED = 8


@dataclass(frozen=True)
class PageView:
    """A reading. `beat_at`, `since` are CLOCK_MONOTONIC seconds of this host."""

    beats: int
    beat_at: float
    activity: Activity
    transaction: int
    step: int  # last committed step, 0 before the first
    since: float  # when activity or transaction changed last
    collectives: int  # collectives issued so far, over all groups, as of the last beat
    longest: float  # seconds of the longest transaction cycle so far, the first two left out


class PageWriter:
    """The worker's side. `create` makes the file; every method is a few plain stores."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, SIZE)
            self._map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        self._put(0, "<Q", _MAGIC)
        self.enter(Activity.WARMING, -1)

    def _put(self, index: int, kind: str, value: float) -> None:
        struct.pack_into(kind, self._map, index * 8, value)

    def beat(self, collectives: int) -> None:
        (beats,) = struct.unpack_from("<Q", self._map, 8)
        self._put(7, "<Q", collectives)
        self._put(2, "<d", time.monotonic())
        self._put(1, "<Q", beats + 1)

    def enter(self, activity: Activity, transaction: int) -> None:
        self._put(4, "<q", transaction)
        self._put(3, "<q", int(activity))
        self._put(6, "<d", time.monotonic())

    def committed(self, step: int, longest: float) -> None:
        self._put(5, "<q", step)
        self._put(8, "<d", longest)


class PageReader:
    """The agent's side. Raises `FileNotFoundError` while the worker has not made its page."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size < SIZE:
                raise FileNotFoundError(f"{path} is not a page yet")
            self._map = mmap.mmap(fd, SIZE, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def read(self) -> PageView:
        _, beats, beat_at, activity, transaction, step, since, collectives, longest = _LAYOUT.unpack_from(self._map)
        return PageView(beats, beat_at, Activity(activity), transaction, step, since, collectives, longest)

    def close(self) -> None:
        self._map.close()

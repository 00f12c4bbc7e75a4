"""Disk space for a journal in an SQLite file: a reserve for decisions, and the rule for writes on a full disk.

The reserve is part of the write-ahead log itself, which SQLite overwrites from its beginning again and again and never shortens. It is
created with a length of `SIZE`, with its blocks allocated, and SQLite takes the zeros after the last frame for the end. So no other program
can take the reserve when the disk is full, and it is complete again as soon as there is room: then SQLite copies the log into the database
file and starts at its beginning. (A file that is deleted when space is needed would give its blocks to whichever program writes first.)
SQLite copies after 1000 pages, 4 MiB, so at least 8 MiB are left on a disk that fills up. The last process to close the journal deletes the
log.

Known limits: a file system that writes overwritten data to another place (copy on write, without preallocation) breaks this, and a quota is
not visible in the free space. Then the reserve is used up sooner, and decisions wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from understudy.messages import orchestrators

MIB = 1 << 20
SIZE = 12 * MIB  # bytes of the log; at least 8 MiB of it are left when the disk fills up
SPARE = MIB  # bytes: with less free space than this, only what must not be lost is written
AGAIN = 30.0  # seconds between two attempts to make the reserve


class Room:
    """The disk space of one journal; belongs to the thread that writes it. `tell` prints a message."""

    def __init__(self, place: Path | str, tell: Callable[[str], None]) -> None:
        self._log = Path(f"{place}-wal") if isinstance(place, Path) else None  # None: the database's own responsibility
        self._tell = tell
        self._full = self._reported = False
        self._next = 0.0  # CLOCK_MONOTONIC of the next attempt; infinity: it exists

    def enough(self) -> bool:
        """Return whether there is space for data that may be lost, too."""
        free = self.free()
        full = free is not None and free < SPARE
        if full != self._full and self._log is not None:
            self._full = full
            used, whole = orchestrators.RESERVE_USED, orchestrators.RESERVE_WHOLE
            self._tell(used(folder=self._log.parent, free=(free or 0) / MIB) if full else whole(folder=self._log.parent))
        return not full

    def reserve(self, again: bool) -> None:
        """Make the reserve if it does not exist. For the journal's writer, between two transactions. `again`: it may be gone."""
        now = time.monotonic()
        if self._log is None or (now < self._next and not again):
            return
        self._next = now + AGAIN
        try:
            if self._extend(self._log):
                self._next = float("inf")
                return
        except OSError:
            pass  # what exists of it helps
        if not self._reported:
            self._reported = True
            self._tell(orchestrators.NO_RESERVE(folder=self._log.parent, free=(self.free() or 0) / MIB, wanted=SIZE / MIB))

    def _extend(self, log: Path) -> bool:
        """Extend the log, and return whether it has its full length. Only what lies after its end is changed. Raises `OSError`."""
        descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            missing = SIZE - size
            if missing > 0:
                if (self.free() or 0) < missing + SPARE:
                    return False
                os.posix_fallocate(descriptor, size, missing)
            return True
        finally:
            os.close(descriptor)

    def free(self) -> int | None:
        """Return the free bytes; None if unknown."""
        if self._log is None:
            return None
        try:
            found = os.statvfs(self._log.parent)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

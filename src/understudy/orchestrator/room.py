"""The room on the disk of a journal that is an SQLite file: a reserve for decisions, and what may be written on a full disk.

The reserve is a part of the write-ahead log itself, which SQLite overwrites from its beginning again and again and never shortens: it is
made `SIZE` long at once, with its blocks allocated, and SQLite takes the zeros after the last frame for the end. So no other program can
take the reserve when the disk is full, and it is whole again as soon as there is room: then SQLite copies the log into the database file
and begins at its start. (A file that is deleted in time of need would give its room to any program that writes first.) It copies after
1000 pages, 4 MiB, so on a disk that fills up at least 8 MiB are left. The last process to close the journal deletes the log.

Known limits: a file system that writes elsewhere what is overwritten (copy on write, without preallocation) keeps no such promise, and a
quota is not seen in the free space. Then the reserve is gone sooner, and decisions wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from understudy.messages import orchestrators

MIB = 1 << 20
SIZE = 12 * MIB  # bytes of the log; 8 MiB are left of it at least when the disk fills up
SPARE = MIB  # bytes: with less room than this on the disk, only what must not be forgotten is written
AGAIN = 30.0  # seconds between two attempts to make the reserve


class Room:
    """Of one journal; belongs to the thread that writes it. `tell` gets sentences for people."""

    def __init__(self, place: Path | str, tell: Callable[[str], None]) -> None:
        self._log = Path(f"{place}-wal") if isinstance(place, Path) else None  # None: the database's own affair
        self._tell = tell
        self._full = self._told = False
        self._next = 0.0  # CLOCK_MONOTONIC of the next attempt; infinity: it is there

    def enough(self) -> bool:
        """Return whether there is room for what may be forgotten, too."""
        free = self.free()
        full = free is not None and free < SPARE
        if full != self._full and self._log is not None:
            self._full = full
            used, whole = orchestrators.RESERVE_USED, orchestrators.RESERVE_WHOLE
            self._tell(used(folder=self._log.parent, free=(free or 0) / MIB) if full else whole(folder=self._log.parent))
        return not full

    def reserve(self, again: bool) -> None:
        """Make the reserve if it is not there. For the journal's writer, between two transactions. `again`: it may be gone."""
        now = time.monotonic()
        if self._log is None or (now < self._next and not again):
            return
        self._next = now + AGAIN
        try:
            if self._extend(self._log):
                self._next = float("inf")
                return
        except OSError:
            pass  # what there is of it helps
        if not self._told:
            self._told = True
            self._tell(orchestrators.NO_RESERVE(folder=self._log.parent, free=(self.free() or 0) / MIB, wanted=SIZE / MIB))

    def _extend(self, log: Path) -> bool:
        """Whether it is as long as it should be. Only what lies after its end is touched. Raises `OSError`."""
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
        """Bytes that we may use; None: not known."""
        if self._log is None:
            return None
        try:
            found = os.statvfs(self._log.parent)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

"""The page of a worker: a small file mapped by the worker, which writes, and by its agent, which reads.

It shows progress without a system call on the training path, and it outlives its worker: the last progress of a killed process can
still be read. Fields are aligned 8-byte values, so a reader may see a new field next to an old one but never
half of a field: each is stored and loaded by one 8-byte copy. (`struct` would not do: it clears the memory before it packs.) The page also
names its worker's process, so that a restarted agent finds the workers of the one before.

The kernel ends a process that writes to a mapped file for which the disk has no room (SIGBUS). So the room is allocated before the file is
mapped (posix_fallocate), and where there is none the worker does without: its page is private memory, its progress is not visible, and the
hang watch does not know it; its loss is still detected. The worker reports this, and workers that are started later try again.

Known limit: file systems that write to a new place each time (btrfs, ZFS) may run out of room although it was allocated.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from understudy.common.page_view import ALONE, LEARNED, LONGEST_GRANT, UNKNOWN, WHERE, Activity, PageView, Process

_MAGIC = 0x79647473_72646E75
_BEATS, _BEAT_AT, _ACTIVITY, _TRANSACTION, _STEP, _SINCE, _COLLECTIVES, _LONGEST = range(1, 9)  # in units of 8 bytes
_PID, _STARTED, _RANK, _WAITS = range(9, 13)
_LOOKS, _OWN_RUNNING, _OWN_COMMITTING, _OWN_IDLE = range(13, 17)  # an earlier version leaves 0 there
_GRANTED, _PROCESS, _LENGTH = range(17, 20)
_TEXT = 2432  # in bytes: after the mutex of the lifeline
_NOTHING = Process(0)
SIZE = 4096


def started(pid: int) -> int:
    """Return when a process was started, in clock ticks since the boot (field 22 of /proc/PID/stat). Raises `OSError` if it does not
    exist.
    """
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def open_process(pid: int, since: int) -> int | None:
    """Return a pidfd of the process that was started at `since`; None if it has ended."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        if started(pid) == since:
            return pidfd
    except OSError:
        pass
    os.close(pidfd)  # the number belongs to another process by now
    return None


def _mapped(path: Path) -> mmap.mmap:
    """Create and map the file. Raises `OSError`; then there is no file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SIZE)
        return mmap.mmap(fd, SIZE)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


class PageWriter:
    """The worker's side, which creates the file; every method is a few plain stores. `trouble`: why the page is not visible to others, or
    empty.
    """

    def __init__(self, path: Path) -> None:
        self.trouble = ""
        try:
            self._map = _mapped(path)
        except OSError as error:
            self.trouble = f"{path}: {error.strerror}"
            self._map = mmap.mmap(-1, SIZE)
        self._integers = memoryview(self._map).cast("q")
        self._times = memoryview(self._map).cast("d")
        self._integers[0] = _MAGIC
        self._times[_BEAT_AT] = time.monotonic()
        self._integers[_RANK] = -1
        self._integers[_STARTED] = started(os.getpid())
        self._integers[_PID] = os.getpid()
        self._text = memoryview(self._map)[_TEXT : _TEXT + 4 * WHERE]
        self._long: tuple[float, str] = (LEARNED, "")  # the stretch that the script has named, and its limit
        self._place, self._process = LEARNED, _NOTHING  # as last entered
        self._transaction_alone = False
        self.enter(Activity.WARMING, -1)

    @property
    def since(self) -> float:
        return float(self._times[_SINCE])

    @property
    def alone(self) -> bool:
        """Whether the limit of the present activity is not learned from steps: a section, a first step, a named stretch."""
        return self._transaction_alone or self._long[0] != LEARNED

    def beat(self, collectives: int, waits: int = UNKNOWN) -> None:
        self._integers[_COLLECTIVES] = collectives
        self._integers[_WAITS] = waits + 1  # 0, what an earlier version leaves there, is `UNKNOWN`
        self._times[_BEAT_AT] = time.monotonic()
        self._integers[_BEATS] += 1

    @property
    def activity(self) -> Activity:
        return Activity(self._integers[_ACTIVITY])

    def looked(self, running: int, committing: int, idle: int) -> None:
        """Record one more sample of whether this worker waits for others, and its own milliseconds in these activities so far."""
        self._integers[_OWN_RUNNING] = running
        self._integers[_OWN_COMMITTING] = committing
        self._integers[_OWN_IDLE] = idle
        self._integers[_LOOKS] += 1

    def looked_in_vain(self) -> None:
        """Record that it cannot be known whether this worker waits; earlier samples do not count any more."""
        self._integers[_LOOKS] = 0

    def assigned(self, rank: int) -> None:
        self._integers[_RANK] = rank

    def enter(self, activity: Activity, transaction: int, *, alone: bool = False, process: Process = _NOTHING) -> None:
        """Record a new activity. `alone`: here a rank may work for long while the others wait."""
        self._times[_SINCE] = time.monotonic()  # first: limits differ by activity
        self._integers[_TRANSACTION] = transaction
        self._integers[_ACTIVITY] = activity
        self._place = ALONE if alone else LEARNED
        if activity is Activity.RUNNING:
            self._transaction_alone = alone
        self._times[_GRANTED] = self._long[0] or self._place
        self._integers[_LENGTH] = 0
        self._integers[_PROCESS] = self._process = process

    def grant(self, seconds: float, what: str) -> tuple[float, str]:
        """Set the limit of a stretch of the script: seconds, or `ALONE`; `LEARNED` ends it. Return the limit before."""
        before, self._long = self._long, (min(seconds, LONGEST_GRANT), what)
        self._times[_GRANTED] = self._long[0] or self._place
        self._times[_SINCE] = time.monotonic()
        return before

    def stands(self, where: str, process: Process) -> None:
        """Record the line of the script at which the worker makes no progress."""
        named = f"{self._long[1]}: {where}" if self._long[1] else where
        text = named[:WHERE].encode(errors="replace")[: 4 * WHERE]
        self._integers[_LENGTH] = 0
        self._text[: len(text)] = text
        self._integers[_PROCESS] = self._process | process
        self._integers[_LENGTH] = len(text)

    def committed(self, step: int, longest: float) -> None:
        self._integers[_STEP] = step
        self._times[_LONGEST] = longest


class PageReader:
    """The agent's side. Raises `FileNotFoundError` while the worker has not created its page."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size < SIZE:
                raise FileNotFoundError(f"{path} is not a page yet")
            self._map = mmap.mmap(fd, SIZE, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._integers = memoryview(self._map).cast("q")
        self._times = memoryview(self._map).cast("d")

    def read(self) -> PageView:
        integers, times = self._integers, self._times
        return PageView(
            beats=integers[_BEATS],
            beat_at=times[_BEAT_AT],
            activity=Activity(integers[_ACTIVITY]),
            transaction=integers[_TRANSACTION],
            step=integers[_STEP],
            since=times[_SINCE],
            collectives=integers[_COLLECTIVES],
            longest=times[_LONGEST],
            waits=integers[_WAITS] - 1,
            looks=integers[_LOOKS],
            own_running=integers[_OWN_RUNNING],
            own_committing=integers[_OWN_COMMITTING],
            own_idle=integers[_OWN_IDLE],
            granted=times[_GRANTED] if -1 <= times[_GRANTED] <= LONGEST_GRANT else LEARNED,  # other processes may write there
            process=integers[_PROCESS],
            where=bytes(self._map[_TEXT : _TEXT + min(max(0, integers[_LENGTH]), 4 * WHERE)]).decode(errors="replace")[:WHERE],
        )

    def owner(self) -> tuple[int, int]:
        """Return the worker's pid, and when it was started (as `started`); (0, 0) if it is not known yet."""
        pid = self._integers[_PID]
        return (pid, self._integers[_STARTED]) if pid else (0, 0)

    def rank(self) -> int:
        """Return the worker's rank; -1: none."""
        return int(self._integers[_RANK])

    def close(self) -> None:
        self._integers.release()
        self._times.release()
        self._map.close()

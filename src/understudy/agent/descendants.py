"""Find all processes that belong to a job, so that none of them is left running.

Theory. A process whose parent died is adopted by its nearest ancestor that is a *child subreaper*. The command line and every agent are
subreapers. So everything that a worker started (data loader processes, shells, daemons in separate sessions) stays below them whichever
process dies, and can be found and killed. In the other direction each of our processes asks the kernel for a signal at its parent's death
(`common.dying`). So one surviving process of ours is enough to clean up.

A stray belongs to the worker that its environment names, or in whose session it is. Strays without either mark are left alone until the job
ends, because a living worker may own them.

Limits: Linux only. If the command line and its agent are killed at the same instant, workers end themselves after a while
(`links.reattach`), but processes that a worker put into separate sessions are adopted by an ancestor outside of the job, and outlive it. A
process of another user (setuid) cannot be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from understudy.messages import agents

_PR_SET_CHILD_SUBREAPER = 36
_OF_THIS_THREAD = 0x20000000  # __WNOTHREAD
ROUND = 0.003  # seconds between rounds of killing: there is no event for adopted processes
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt every orphaned descendant from now on."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), agents.KERNEL_TOO_OLD())


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    state: str  # "Z": ended, not yet reaped


def _read(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name is in parentheses and may itself contain any character, so the fields start at the last parenthesis.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[3]), fields[0].decode())


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read(int(name))) is not None:
            yield process


def descendants(root: int) -> list[Process]:
    """Return every process below `root`, without `root` itself."""
    children: dict[int, list[Process]] = {}
    for process in _all():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    front = [root]
    while front:
        below = children.get(front.pop(), [])
        found += below
        front += [process.pid for process in below]
    return found


def environment_entry(pid: int, name: str) -> str | None:
    """Return the value that a process was started with, or None."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    start = name.encode() + b"="
    for entry in block.split(b"\0"):
        if entry.startswith(start):
            return entry[len(start) :].decode(errors="replace")
    return None


def _children() -> Iterator[Process]:
    """Yield the children of this process, including adopted ones. The cost depends on their number, not on the number of processes of the
    host.
    """
    try:
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:  # a thread has ended in between
        lists = []
    if not lists:  # a kernel without CONFIG_PROC_CHILDREN
        yield from (process for process in _all() if process.parent == os.getpid())
    for pid in " ".join(lists).split():
        if (process := _read(int(pid))) is not None:
            yield process


def reap(keep: Container[int]) -> None:
    """Collect children of the main thread that have ended, except those in `keep`, whose exit status is needed elsewhere.

    Call it on the main thread, to which the kernel gives orphans. A process that another thread has started is a child of that thread,
    which needs its exit status: for example a program of a detector, whose pid is unknown until it has started.
    """
    for process in _children():
        if process.state == "Z" and process.pid not in keep:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG | _OF_THIS_THREAD)


def kill_round(chosen: Callable[[Process], bool], keep: Container[int], everywhere: bool = False) -> list[int]:
    """SIGKILL every descendant of this process (or `everywhere` on this host) that is `chosen` and not in `keep`.

    Return those that were still there. Call it until there are none: the victims may have forked in the meantime, and their children are
    adopted, and found, only when they are gone. It collects no exit status, so it may run on any thread.
    """
    among = (p for p in _all() if p.pid != os.getpid()) if everywhere else descendants(os.getpid())
    left = [p.pid for p in among if p.state != "Z" and p.pid not in keep and chosen(p)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return left


def kill_all(patience: float = 3.0) -> list[int]:
    """SIGKILL everything below this process; block until it is gone. Return the processes that are still alive after `patience` seconds."""
    limit = time.monotonic() + patience
    while (left := kill_round(lambda process: True, ())) and time.monotonic() < limit:
        time.sleep(ROUND)
    return left

"""Ends what a run of the tests leaves behind, however the run ends: at its end, interrupted, or by SIGKILL.

Theory of operation. Each pytest process, also each worker of pytest-xdist, has a watchdog: a process outside of its session and process
group, and not its child, so that no test meets it. Processes that a test starts inherit an environment variable (`NAME`), in which the
pytest process has appended an id of its own to those of the ones above it (`outer:inner`). When the pytest process has ended, the watchdog
kills every process with that id; so what an xdist worker leaves behind ends with the worker, and what it did not come to with the run.
At the usual end pytest tells its watchdog, and waits for it.

Rules.
- No process without the id is ever killed: a process is opened (pidfd) before its environment is read, and the signal goes to what was
  opened.
- The watchdog depends on nothing but the end of its pytest process: not on a pipe, of which a fork may hold a copy.

Known limits. A process that does not have the environment of the one that started it (`env -i`) is not found, nor one that pytest has
forked and that executes no program; tests that start such (on Slurm) pass `marks()` on, or end them with PR_SET_PDEATHSIG. A process of
another user is out of reach, unless the tests run as root. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAME = "UNDERSTUDY_TEST_RUN"
LIMIT = 60.0  # seconds for what was killed to end
QUIET = 3  # looks in a row that must find nothing: while a process executes a program, its environment is empty for a moment
PAUSE_MS = 20  # between two looks


class Watchdog:
    """That of this process. `close` it, or end."""

    def __init__(self) -> None:
        """Start it, and have the processes that are started from now on marked. Returns when it watches."""
        self.id = uuid.uuid4().hex
        self._outer = os.environ.get(NAME)
        self._link, theirs = socket.socketpair()
        own = {name: value for name, value in os.environ.items() if name != NAME}
        words = [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.id]
        with theirs:
            subprocess.run(words, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=own, start_new_session=True, check=True)
        assert self._link.recv(1) == b".", "the watchdog did not come to life"
        os.environ[NAME] = f"{self._outer}:{self.id}" if self._outer else self.id

    def close(self) -> None:
        """Have it kill what is left, and wait until it has."""
        if self._outer is None:
            os.environ.pop(NAME, None)
        else:
            os.environ[NAME] = self._outer
        self._link.shutdown(socket.SHUT_WR)  # and not only `close`: a fork may have a copy
        self._link.recv(1)
        self._link.close()


_mine: Watchdog | None = None


def pytest_configure(config: Any) -> None:
    """Start the watchdog, with the standard error that pytest was given and not the one that it captures."""
    global _mine
    if _mine is None:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            _mine = Watchdog()


def pytest_unconfigure() -> None:
    """Wait until nothing is left, also after an interrupt."""
    global _mine
    if _mine is not None:
        _mine.close()
        _mine = None


def marks() -> dict[str, str]:
    """Return what the environment of a process needs, where it is made without this process's own."""
    return {NAME: os.environ[NAME]} if NAME in os.environ else {}


# -- in the watchdog's process ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(pid: int, mark: str) -> Iterator[int | None]:
    """The process, if it carries the mark: a pidfd; else None."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        start, found = f"{NAME}=".encode(), None
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(start) and mark.encode() in entry[len(start) :].split(b":"):
                    found = pidfd
        yield found
    finally:
        os.close(pidfd)


def end(mark: str) -> list[str]:
    """Kill every process with this mark, until there is none. Returns what they were."""
    ended: dict[int, str] = {}
    last, quiet = time.monotonic() + LIMIT, 0
    while quiet < QUIET and time.monotonic() < last:
        quiet += 1
        for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
            with _opened(pid, mark) as pidfd:
                if pidfd is None:
                    continue
                quiet = 0
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    ended.setdefault(pid, f"{pid} ({words[:100]})")
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.poll().poll(PAUSE_MS)
    return list(ended.values())


def main(pid: int, mark: str) -> None:
    """Watch the process `pid`."""
    if os.fork():
        os._exit(0)  # so that it is no child of a process whose tests count its children
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    link = socket.socket(fileno=0)
    poll = select.poll()
    poll.register(link, select.POLLIN)
    with contextlib.suppress(OSError):  # it has ended already
        poll.register(os.pidfd_open(pid), select.POLLIN)
        link.sendall(b".")
        poll.poll()
    if ended := end(mark):
        which = ", ".join(ended)
        with contextlib.suppress(OSError):
            print(f"\n{len(ended)} processes of the tests were left behind, and are killed: {which}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

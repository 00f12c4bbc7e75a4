"""For tests with real processes: every process of a test carries a mark in its environment, and can be found by it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAME = "UNDERSTUDY_TEST_MARK"
LIMIT = 60.0  # seconds; generous, because machines are slow and busy


@dataclass(frozen=True)
class Mark:
    value: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, NAME: self.value, **more}

    def pids(self) -> list[int]:
        """Every living process that was started with this mark."""
        wanted = f"{NAME}={self.value}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def pids_running(self, words: str) -> list[int]:
        """Those of them whose command line contains `words`."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if words in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                    found.append(pid)
        return found

    def wait_until_none(self, limit: float = LIMIT) -> None:
        """Wait for the end of every process with this mark, also of those that appear meanwhile."""
        end = time.monotonic() + limit
        while pids := self.pids():
            for pid in pids:
                wait_for_end(pid, end - time.monotonic())

    def kill(self) -> None:
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    send(pid, signal.SIGKILL)
            for pid in pids:
                wait_for_end(pid, LIMIT)


@contextlib.contextmanager
def marked() -> Iterator[Mark]:
    """Yield a mark; processes that still carry it at the end are killed, so that a failing test leaves none running."""
    mark = Mark()
    try:
        yield mark
    finally:
        mark.kill()


def pid_of(ask: Callable[[], Mapping[str, Any] | int | None], limit: float = LIMIT) -> int:
    """Ask the program under test until a process id is known, and return it. `ask` gives an entry of a status or of a file (with "pid"), or
    the id itself. Not known yet: null, and an entry that is not there (`LookupError`). No answer may be 0, which is no process id.
    """
    known: int | None = None

    def asked() -> bool:
        nonlocal known
        with contextlib.suppress(LookupError):
            found = ask()
            known = found["pid"] if isinstance(found, Mapping) else found
        return known is not None

    wait_until(asked, "a process id", limit)
    return _of_a_test(known)


def send(pid: int | None, number: signal.Signals) -> None:
    """Send a signal to one process. Fails the test if that is not a process of a test: an id that is not known (null; 0 means the caller's
    own process group to kill(2)), a negative number (a whole group, or everything), init, and this process itself.
    """
    os.kill(_of_a_test(pid), number)


def send_to_group(leader: int | None, number: signal.Signals) -> None:
    """Send a signal to the process group that this process leads; as `send` refuses, and this process's own group."""
    assert leader != os.getpgid(0), "this is the group of the tests themselves"
    os.killpg(_of_a_test(leader), number)


def is_alive(pid: int | None) -> bool:
    """Return whether there is such a process; a zombie is one."""
    try:
        os.kill(_of_a_test(pid), 0)
    except ProcessLookupError:
        return False
    return True


def _of_a_test(pid: int | None) -> int:
    assert isinstance(pid, int) and pid >= 2 and pid != os.getpid(), f"{pid!r} is no process of a test: no signal is sent to it"
    return pid


def wait_for_end(pid: int | None, limit: float = LIMIT) -> None:
    """Wait until the process has ended (it may be a zombie then)."""
    try:
        fd = os.pidfd_open(_of_a_test(pid))
    except ProcessLookupError:
        return
    try:
        ended = select.poll()  # not select(), whose descriptors are below 1024
        ended.register(fd, select.POLLIN)
        ready = ended.poll(max(0.0, limit) * 1000)
    finally:
        os.close(fd)
    if not ready:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        raise AssertionError(f"process {pid} ({command}) is still there")


def wait_until(condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    """For what brings no event to wait for: a file that appears, another process's output."""
    end = time.monotonic() + limit
    nothing = select.poll()
    while not condition():
        assert time.monotonic() < end, f"still waiting for: {what}"
        nothing.poll(10)

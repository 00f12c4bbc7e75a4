"""For tests with real processes: every process of a test carries a mark in its environment, and can be found by it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
                    os.kill(pid, signal.SIGKILL)
            for pid in pids:
                wait_for_end(pid, LIMIT)


@contextlib.contextmanager
def marked() -> Iterator[Mark]:
    """A mark; whatever still carries it at the end is killed, so that a failing test leaves nothing behind."""
    mark = Mark()
    try:
        yield mark
    finally:
        mark.kill()


def wait_for_end(pid: int, limit: float = LIMIT) -> None:
    """Wait until the process has ended (it may be a zombie then)."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([fd], [], [], max(0.0, limit))
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

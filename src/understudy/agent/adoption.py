"""Adopt the workers of an agent that is gone: the new agent finds them by their pages, and they introduce themselves.

Training went on in the meantime. A worker that has ended since is a loss like any other, reported late; how it ended and its last output
are unknown. Messages that the former agent had forwarded are not repeated; the orchestrator and the workers repeat the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from understudy.agent.output import Route
from understudy.agent.worker import Worker
from understudy.common.bounds import known_pid
from understudy.core.events import WorkerLost
from understudy.core.model import LossCause
from understudy.links import messages, reattach
from understudy.links.page import PageReader, open_process
from understudy.links.reattach import Introduction
from understudy.messages import agents

MANNERS = 5.0  # seconds for a process that has connected to identify itself


@dataclass(frozen=True)
class AbandonedWorker:
    """A worker whose agent is gone."""

    worker: str
    page: PageReader
    pid: int
    pidfd: int | None  # None: it has ended

    def taken_up(self, node: str, route: Route) -> Worker:
        """Return the worker for the new agent of `node`, which owns `page` and `pidfd` from here on."""
        known = Worker(self.worker, self.pid, -1, route, ours=False, page=self.page, rank=self.page.rank())
        if self.pidfd is not None:
            known.pidfd = self.pidfd
            return known
        view = known.look()
        last = time.time() - (time.monotonic() - view.beat_at if view is not None else 0.0)
        detail = agents.ENDED_MEANWHILE(node=node, where=known.whereabouts())
        known.alive, known.lost = False, WorkerLost(self.worker, LossCause.KILLED, detail, last)
        self.page.close()
        known.page = None
        return known


@dataclass(frozen=True)
class IntroducedWorker:
    """A worker that introduces itself. The caller that adopts it owns `link` and the outputs."""

    introduction: Introduction
    pid: int
    link: socket.socket
    stdout: int
    stderr: int

    def reject(self) -> None:
        """Reject the worker; it ends."""
        for fd in (self.stdout, self.stderr):
            os.close(fd)
        self.link.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def abandoned(folder: Path) -> list[AbandonedWorker]:
    """Return the workers according to the pages in `folder`. A page without an owner is of a process that had not become a worker yet."""
    found = []
    for path in sorted(folder.glob("*.page")):
        try:
            page = PageReader(path)
        except OSError:
            continue
        pid, since = page.owner()
        if pid:
            found.append(AbandonedWorker(path.stem, page, pid, open_process(pid, since)))
        else:
            page.close()
    return found


def has_workers(folder: Path) -> bool:
    """Return whether any of them is alive."""
    found = abandoned(folder)
    for left in found:
        left.page.close()
        if left.pidfd is not None:
            os.close(left.pidfd)
    return any(left.pidfd is not None for left in found)


class Reception:
    """The socket where workers introduce themselves. `on_met` runs on the event loop."""

    def __init__(self, folder: Path, on_met: Callable[[IntroducedWorker], None]) -> None:
        """Open the socket. Raises `OSError`."""
        self._folder = folder
        self._on_met = on_met
        self._loop = asyncio.get_running_loop()
        self._sock = reattach.listen(folder)
        self._guests: dict[int, _Guest] = {}
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for guest in list(self._guests.values()):
            self._dismiss(guest)
        (self._folder / reattach.FILE).unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError:
            return
        sock.setblocking(False)
        guest = self._guests[sock.fileno()] = _Guest(sock)
        self._loop.add_reader(sock.fileno(), self._read, guest)
        guest.limit = self._loop.call_later(MANNERS, self._dismiss, guest)

    def _read(self, guest: _Guest) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(guest.sock, 1 << 16, 2)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        guest.fds += fds
        guest.received += data
        if data and not guest.received.endswith(b"\n") and len(guest.received) <= messages.LIMIT:
            return
        try:
            introduction = Introduction.decode(bytes(guest.received))
            stdout, stderr = guest.fds
        except ValueError:  # not a worker
            self._dismiss(guest)
            return
        if guest.pid is None:
            self._dismiss(guest)
            return
        self._forget(guest)
        for fd in guest.fds:
            os.set_inheritable(fd, False)
        self._on_met(IntroducedWorker(introduction, guest.pid, guest.sock, stdout, stderr))

    def _forget(self, guest: _Guest) -> None:
        if guest.limit is not None:
            guest.limit.cancel()
        self._loop.remove_reader(guest.sock.fileno())
        del self._guests[guest.sock.fileno()]

    def _dismiss(self, guest: _Guest) -> None:
        self._forget(guest)
        for fd in guest.fds:
            os.close(fd)
        guest.sock.close()


class _Guest:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # None: it is outside of this process namespace (the kernel reports 0), so no process here could watch or end it.
        self.pid = known_pid(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
        self.received = bytearray()
        self.fds: list[int] = []
        self.limit: asyncio.TimerHandle | None = None

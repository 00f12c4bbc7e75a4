"""The agent's end of the socket to one worker: lines of `links.messages` both ways.

A worker can only send its own events: one that it cannot be the source of, or that names another worker, is rejected like any
malformed line. Rejected lines are reported and dropped; they never end the link or the agent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from understudy.core import commands
from understudy.core.events import FromWorker
from understudy.links import messages
from understudy.links.framing import LineReader
from understudy.messages import wire


def check(line: bytes, worker: str) -> FromWorker:
    """Return the event in `line`, if `worker` may send it. Raises `BadMessage`."""
    try:
        message = messages.decode(line)
    except RecursionError as error:  # thousands of nested JSON arrays or objects
        raise messages.BadMessage(wire.NESTED_TOO_DEEPLY()) from error
    if not isinstance(message, FromWorker):
        raise messages.BadMessage(wire.NOT_A_WORKERS(type=type(message).__name__))
    if message.worker != worker:
        raise messages.BadMessage(wire.IN_ANOTHERS_NAME(type=type(message).__name__, worker=message.worker))
    return message


class WorkerLink:
    """Owns the socket. Callbacks run on the event loop; `on_closed` once, when the worker has closed its end."""

    def __init__(
        self,
        sock: socket.socket,
        worker: str,
        on_event: Callable[[FromWorker], None],
        on_refused: Callable[[str], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._worker = worker
        self._on_event = on_event
        self._on_refused = on_refused
        self._on_closed = on_closed
        self._incoming = LineReader()
        self._outgoing = bytearray()
        self._open = True
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self.drain)

    def send(self, command: commands.Command) -> None:
        """Send a command without blocking: what the socket does not take at once (a stopped worker) waits here."""
        if not self._open:
            return
        waiting = bool(self._outgoing)
        self._outgoing += messages.encode(command).encode() + b"\n"
        if not waiting:
            self._flush()

    def drain(self) -> None:
        """Read the available data. Called by the loop, and once more when the worker has ended, before its end is evaluated."""
        while self._open:
            try:
                data = self._sock.recv(1 << 16)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                self._on_closed()
                return
            for line in self._incoming.feed(data):
                if line is None:
                    self._on_refused(wire.LINE_TOO_LONG(most=messages.LIMIT))
                else:
                    self._take(line)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._outgoing)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:  # the reader will see the end
            self._outgoing.clear()
            self._loop.remove_writer(self._sock.fileno())
            return
        del self._outgoing[:sent]
        if self._outgoing:
            self._loop.add_writer(self._sock.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _take(self, line: bytes) -> None:
        try:
            event = check(line, self._worker)
        except messages.BadMessage as error:
            self._on_refused(str(error))
        else:
            self._on_event(event)

"""The socket between the command line and its agent: an inherited socketpair, one JSON object a line.

Down: `{"stop": {"signal": 15, "exit_code": 130, "reason": "..."}}`. Up, once: `{"ending": {...}}`, as soon as the agent
knows how the job ends. The end of the socket tells each that the other one is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Callable


class Control:
    """The agent's end."""

    def __init__(
        self,
        sock: socket.socket,
        on_stop: Callable[[signal.Signals, int, str], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._on_stop = on_stop
        self._on_gone = on_gone
        self._incoming = b""
        sock.setblocking(False)
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    def tell(self, what: str, exit_code: int, message: str, told: bool) -> None:
        line = json.dumps({what: {"exit_code": exit_code, "message": message, "told": told}}) + "\n"
        self._sock.setblocking(True)
        with contextlib.suppress(OSError):
            self._sock.sendall(line.encode())
        self._sock.setblocking(False)

    def _read(self) -> None:
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._on_gone()
            return
        self._incoming += data
        *lines, self._incoming = self._incoming.split(b"\n")
        for line in lines:
            stop = json.loads(line)["stop"]
            self._on_stop(signal.Signals(stop["signal"]), int(stop["exit_code"]), str(stop["reason"]))

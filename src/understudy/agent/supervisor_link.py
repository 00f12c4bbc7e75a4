"""The agent's end of the socket to the command line that started it (`links.supervision`)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable

from understudy.links.framing import LineReader
from understudy.links.supervision import Ending, Stop, Unled, decode


class SupervisorLink:
    def __init__(
        self,
        sock: socket.socket,
        on_stop: Callable[[signal.Signals, int, str], None],
        on_gone: Callable[[], None],
        on_notice: Callable[[signal.Signals], None],
        on_unled: Callable[[int], None],
    ) -> None:
        self._sock = sock
        self._on_stop = on_stop
        self._on_notice = on_notice
        self._on_unled = on_unled
        self._on_gone = on_gone
        self._incoming = LineReader()
        sock.setblocking(False)
        asyncio.get_running_loop().add_reader(sock.fileno(), self._read)

    def tell(self, ending: Ending) -> None:
        self._sock.setblocking(True)
        with contextlib.suppress(OSError):
            self._sock.sendall(ending.encode())
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
        for line in filter(None, self._incoming.feed(data)):
            message = decode(line)
            if isinstance(message, Stop):
                self._on_stop(signal.Signals(message.signal), message.exit_code, message.reason)
            elif isinstance(message, Unled):
                self._on_unled(message.world_size)
            else:
                self._on_notice(signal.Signals(message.signal))

"""Connections whose other end has not identified itself as a member yet.

Any process that reaches the port may open some. A member identifies itself as soon as it has connected, so few of them wait here at a
time, and when there are too many the oldest are closed: descriptors are left for members, and a full table is no lost peer.
"""

from __future__ import annotations

import errno
import hmac
import select
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

MOST = 64  # that wait at a time
PAUSE_MS = 50  # if there is no descriptor for one
AT_ONCE = 256  # that are accepted in one go: other connections may be served in between
TOKEN = 16  # bytes
HELLO = TOKEN + 4  # the token and the number of the member that connects
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Strangers:
    def __init__(self, token: bytes) -> None:
        """`token`: the one that members show."""
        self._token = token
        self._received: dict[socket.socket, bytes] = {}  # the oldest first

    def __iter__(self) -> Iterator[socket.socket]:
        return iter(self._received)

    def accept(self, listeners: Iterable[socket.socket]) -> list[tuple[int, socket.socket]]:
        """Return the members that have introduced themselves, with their connections."""
        found = [known for connection in list(self._received) if (known := self._hear(connection))]
        for listener in listeners:
            for _ in range(AT_ONCE):
                connection = self._next(listener)
                if connection is None:
                    break
                self._received[connection] = b""
                if known := self._hear(connection):
                    found.append(known)
                self._turn_away(MOST)
        return found

    def close(self) -> None:
        self._turn_away(0)

    def _next(self, listener: socket.socket) -> socket.socket | None:
        """Return the next one that has connected; None if there is none, or no room for one."""
        try:
            with suppress(ConnectionAbortedError):
                connection, _ = listener.accept()
                connection.setblocking(False)
                return connection
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._turn_away(0)
            select.poll().poll(PAUSE_MS)  # waiting connections still exist then
        return None

    def _hear(self, connection: socket.socket) -> tuple[int, socket.socket] | None:
        received = self._received[connection]
        try:
            heard = connection.recv(HELLO - len(received))
        except BlockingIOError:
            return None
        except OSError:
            heard = b""
        received = self._received[connection] = received + heard
        if heard and len(received) < HELLO:
            return None
        del self._received[connection]
        if len(received) == HELLO and hmac.compare_digest(received[:TOKEN], self._token):
            return int.from_bytes(received[TOKEN:], "little"), connection
        connection.close()
        return None

    def _turn_away(self, left: int) -> None:
        """Close the oldest, until `left` are there."""
        while len(self._received) > left:
            oldest = next(iter(self._received))
            del self._received[oldest]
            oldest.close()

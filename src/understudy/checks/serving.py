"""Serve the other side of the network check: `understudy check-node --serve`. Serves some clients at a time, each for a while, and ends
itself.

A client that has not proved that it has the token (`peers`) occupies one of the places for `peers.HANDSHAKE` seconds at most.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence

from understudy.checks import peers
from understudy.checks.peers import Broken, Line
from understudy.messages import network_check

AT_ONCE = 8  # clients
SLACK = 20.0  # seconds in addition to those of sending


class Serving:
    def __init__(self, listener: socket.socket, tokens: Sequence[str], tell: Callable[[str], None]) -> None:
        """Prepare the server. `tokens`: any of them is accepted; none: clients without a token are admitted. `tell` is called on any
        thread.
        """
        self._listener = listener
        self._tokens = tuple(tokens) or ("",)
        self._tell = tell
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def run(self, seconds: float) -> None:
        """Serve for so many seconds. Clients that are being served then are cut off with the process."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._listener.settimeout(left)
            try:
                connection, address = self._listener.accept()
            except TimeoutError:
                return
            except ConnectionError:  # the client has gone again
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection, str(address[0])), daemon=True).start()
            else:
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(0.0)
                    connection.send(peers.BUSY)

    def _serve(self, connection: socket.socket, name: str) -> None:
        try:
            with connection:
                found = serve(connection, self._tokens)
        except Broken as problem:
            found = str(problem)
        finally:
            self._places.release()
        self._tell(f"{name}: {found}")


def serve(connection: socket.socket, tokens: tuple[str, ...]) -> str:
    """Serve one client; return the result, for a person. Raises `Broken`."""
    line = Line(connection, peers.HANDSHAKE)
    request = peers.admit(line, tokens)
    line.allow(2 * request.seconds + SLACK)
    upwards, downwards = peers.both(request.seed)
    received = upwards.receive(line)
    line.send(received.packed())
    downwards.send(line, request.seconds)
    return network_check.SERVED(gbits=received.gbits, wrong=received.wrong, count=received.count)

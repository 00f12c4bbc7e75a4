"""The UDP sockets of the rail agent: one on each rail, bound to its device and its address, and the counts of packets that are ignored.

A socket stays bound to the device that it was opened for, not to its name. A device that was removed and is back is another one, so its
socket is opened again (`follow`).
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from understudy.messages import network_rails
from understudy.network.configuration import BadNetwork, Rail
from understudy.network.packets import Codec, Kind, Malformed, Packet, Unauthenticated

AT_ONCE = 1000  # packets that are read from one rail before the others have their turn
_ROOM = 1 << 20  # bytes of a socket's buffer
_NOT_THERE = (errno.ENODEV, errno.EADDRNOTAVAIL, errno.ENXIO)


@dataclass
class Ignored:
    """Packets that were ignored."""

    malformed: int = 0
    unauthenticated: int = 0
    unexpected: int = 0


class RailSocket:
    """The socket of one rail. It may be closed, while there is no device."""

    def __init__(self, rail: Rail, port: int, codec: Codec, ignored: Ignored) -> None:
        self.rail = rail
        self._port = port
        self._codec = codec
        self._ignored = ignored
        self._socket: socket.socket | None = None
        self._index: int | None = None  # of the device that it is bound to

    def fileno(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    def follow(self, index: int | None) -> None:
        """Open the socket on the device with this index; None: there is none. Raises `BadNetwork` if the address is in use."""
        if index != self._index or self._socket is None:
            self.close()
            self._index = index
            if index is not None:
                self._socket = self._open()

    def send(self, packet: Packet, receiver: str) -> None:
        """Send a packet. One that cannot be sent is lost, like one that does not arrive."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(self._codec.packed(packet, self.rail.address, receiver), (receiver, self._port))

    def received(self) -> Iterator[tuple[Packet, str]]:
        """Yield valid packets that have arrived, with their senders. Answers questions only when the caller does."""
        for _ in range(AT_ONCE if self._socket is not None else 0):
            assert self._socket is not None
            try:
                data, (sender, port) = self._socket.recvfrom(2048)
            except BlockingIOError:
                return
            except OSError:  # what the network reports about an earlier packet
                continue
            try:
                packet = self._codec.read(data, sender, self.rail.address)
            except Malformed:
                self._ignored.malformed += 1
            except Unauthenticated:
                self._ignored.unauthenticated += 1
            else:
                if port == self._port:
                    yield packet, sender
                else:
                    self._ignored.unexpected += 1

    def answer(self, packet: Packet, sender: str, reaches: int) -> None:
        self.send(Packet(Kind.ANSWER, packet.nonce, reaches), sender)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket | None:
        """Return a socket; None if device or address are not there (any more)."""
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.rail.device.encode())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
            made.bind((self.rail.address, self._port))
        except OSError as error:
            made.close()
            if error.errno in _NOT_THERE:
                return None
            raise BadNetwork(
                network_rails.PORT_UNUSABLE(address=self.rail.address, port=self._port, device=self.rail.device, reason=error.strerror)
            ) from error
        return made

"""Connections among the members of one generation, for the data of the runtime itself: hand-overs, votes, state.

A connection carries bytes one way, in order, from the member that opened it when it first had something to send. Every member listens
on its own port for as long as the generation lasts, and at a Unix socket for members on its own node, which is twice as fast. It
publishes both in the generation's store together with a token, which a member that connects must show. There is no thread: bytes move
while the main thread is in `exchange`, directly between sockets and the memory that they come from or go to.
"""

from __future__ import annotations

import functools
import itertools
import os
import secrets
import select
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from understudy.core.buddies import Place
from understudy.messages import worker_processes
from understudy.worker.encoding.messages import PeerAddress, pack, unpack
from understudy.worker.errors import BadMessage, GenerationAborted, PeerLost
from understudy.worker.transport.rendezvous import Rendezvous, node_address
from understudy.worker.transport.strangers import TOKEN, Strangers

_LENGTH = 8  # bytes before a frame
LARGEST = 1 << 34  # bytes of one: a set-up's record and the copy of a rank have limits far below

_AHEAD = 4096  # bytes that are read at once if fewer are needed

Buffers = Iterator[memoryview]


def framed(data: bytes, kind: bytes = b"") -> memoryview:
    """Return `data` with its length and `kind` before it, to be read by `read_frame`."""
    return memoryview(b"".join((len(data).to_bytes(_LENGTH, "little"), kind, data)))


def frame(data: bytes) -> Buffers:
    """Return the buffers of the same frame, to be sent to one member."""
    yield framed(data)


def read_frame(found: dict[int, bytes], key: int, kinds: dict[int, bytes] | None = None) -> Buffers:
    """Make room for a frame; its data is then in `found[key]`, and its kind, of one byte, in `kinds[key]` where frames have one.

    Raises `BadMessage` for one that is larger than any member sends.
    """
    head = bytearray(_LENGTH + (kinds is not None))
    yield memoryview(head)
    size = int.from_bytes(head[:_LENGTH], "little")
    if kinds is not None:
        kinds[key] = bytes(head[_LENGTH:])
    if size > LARGEST:
        raise BadMessage(worker_processes.TOO_LARGE(member=key, size=size, most=LARGEST))
    data = bytearray(size)
    yield memoryview(data)
    found[key] = bytes(data)


@dataclass
class _Way:
    """A connection to a member."""

    connection: socket.socket
    rest: memoryview | None = None  # of a trail that was sent in part; it is sent before all else


class _Outgoing:
    """Bytes on their way out of buffers through one connection."""

    def __init__(self, peer: int, connection: socket.socket, buffers: Buffers) -> None:
        self.peer = peer
        self.connection = connection
        self._buffers = buffers
        self._rest: memoryview | None = next(buffers, None)

    def push(self) -> bool:
        """Send what can be sent now; return whether that was all. Raises `PeerLost`."""
        while (rest := self._rest) is not None:
            try:
                count = self.connection.send(rest, socket.MSG_NOSIGNAL) if rest else 0
            except BlockingIOError:
                return False
            except OSError as error:
                raise _lost(self.peer, error) from error
            self._rest = rest[count:] if count < len(rest) else next(self._buffers, None)
        return True


class _ReadAhead:
    """A connection from which bytes are received. Several small messages are read at once: the next has often arrived with one."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._ahead = b""  # read, and not consumed yet

    def recv_into(self, room: memoryview) -> int:
        """Receive as from a socket. Never blocks while there is something ahead."""
        if not self._ahead:
            if len(room) >= _AHEAD:
                return self.connection.recv_into(room)
            self._ahead = self.connection.recv(_AHEAD)
        count = min(len(room), len(self._ahead))
        room[:count] = self._ahead[:count]
        self._ahead = self._ahead[count:]
        return count


class _Incoming:
    """Bytes on their way into buffers."""

    def __init__(self, peer: int, source: _ReadAhead | None, buffers: Buffers) -> None:
        self.peer = peer
        self.source = source  # None: the peer has not connected yet
        self._buffers = buffers
        self._rest: memoryview | None = next(buffers, None)

    @property
    def done(self) -> bool:
        return self._rest is None

    def pull(self) -> bool:
        """Receive the available data; return whether that was all. Raises `PeerLost`."""
        while (room := self._rest) is not None:
            if self.source is None:
                return False
            try:
                count = self.source.recv_into(room) if room else 0
            except BlockingIOError:
                return False
            except OSError as error:
                raise _lost(self.peer, error) from error
            if room and not count:
                raise _lost(self.peer, "it was closed")
            self._rest = room[count:] if count < len(room) else next(self._buffers, None)
        return True


class Peers:
    """This member's connections with the other members of a generation. Another thread may only call `abort`, and read `waiting`."""

    def __init__(self, meeting: Rendezvous, member: int) -> None:
        self._meeting = meeting
        self._member = member
        self._token = secrets.token_bytes(TOKEN)
        host = data_address()
        self._listener = socket.create_server((host, 0), family=_family(host), backlog=1024)
        self._listeners = [self._listener]
        where, name = b"", b""  # of a Unix socket
        with suppress(OSError):  # without one they use TCP
            self._listeners.append(_listen_locally())
            where, name = _where(), self._listeners[-1].getsockname()
        for listener in self._listeners:
            listener.setblocking(False)
        self._woken, self._wake = socket.socketpair()
        self._out: dict[int, _Way] = {}
        self._in: dict[int, _ReadAhead] = {}
        self._incoming: list[_Incoming] | None = None  # buffers of the running exchange; or of the last one, which has failed
        self.waiting = False  # the main thread sleeps until a peer sends or takes something; read by the control thread
        self._strangers = Strangers(self._token)
        here = own_place()
        port = self._listener.getsockname()[1]
        meeting.put(f"peer/{member}", pack(PeerAddress(here.domain, here.node, host, port, where, name, self._token)))

    def meet(self, members: Iterable[int]) -> list[Place]:
        """Wait until all of `members` are listening; return their addresses. Raises `GenerationAborted`."""
        addresses = map(self._address, members)
        return [Place(address.domain, address.node) for address in addresses]

    def _address(self, member: int) -> PeerAddress:
        return unpack(PeerAddress, self._meeting.get(f"peer/{member}"))

    def exchange(self, sending: Mapping[int, Buffers], receiving: Mapping[int, Buffers]) -> None:
        """Send and receive, by member; return when all of it has left this process and all of it has arrived.

        Raises `PeerLost` when a connection breaks, and `GenerationAborted` when the generation ends. After that every exchange raises,
        because connections may be in the middle of a message.
        """
        if self._meeting.over():
            raise self._aborted()
        if self._incoming is not None:
            raise PeerLost(worker_processes.BROKE_BEFORE())
        self._incoming = []
        try:
            self._exchange(sending, receiving)
        except OSError as error:
            raise PeerLost(worker_processes.CONNECTIONS_BROKE(generation=self._meeting.generation, error=error)) from error
        self._incoming = None

    def _exchange(self, sending: Mapping[int, Buffers], receiving: Mapping[int, Buffers]) -> None:
        outgoing, incoming = [], list[_Incoming]()
        self._incoming = incoming
        for peer, buffers in sending.items():
            going = self._outgoing(peer, buffers)
            if not going.push():
                outgoing.append(going)
        for peer, rooms in receiving.items():
            coming = _Incoming(peer, self._in.get(peer), rooms)
            if not coming.pull():
                incoming.append(coming)
        while outgoing or incoming:
            self._wait(outgoing, incoming)
            if any(coming.source is None for coming in incoming):
                self._accept()
                for coming in incoming:
                    coming.source = self._in.get(coming.peer)
            outgoing = [going for going in outgoing if not going.push()]
            self._incoming = incoming = [coming for coming in incoming if not coming.pull()]

    def tell(self, peer: int, frame: memoryview) -> bool:
        """Send a frame that no rank waits for; return whether the connection is there and took the beginning of it at once."""
        way = self._out.get(peer)
        if way is None or way.rest is not None or self._incoming is not None:
            return False
        try:
            count = way.connection.send(frame, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        except OSError:
            return False
        way.rest = frame[count:] if count < len(frame) else None
        return True

    def take_rest(self, peer: int, buffers: Buffers) -> None:
        """Receive what has come from a peer by now, when no exchange will wait for it. `buffers`: for a message that was not half read."""
        try:
            half_read = next((coming for coming in self._incoming or () if coming.peer == peer and not coming.done), None)
            if peer not in self._in:
                self._accept()
            for coming in filter(None, (half_read, _Incoming(peer, None, buffers))):  # more may have come after that message
                coming.source = self._in.get(peer)
                if not coming.pull():
                    return
        except (PeerLost, BadMessage, OSError):
            return  # all that had come was read before that

    def abort(self) -> None:
        """End an `exchange` that is under way, if the generation is over by now."""
        if self._meeting.over():
            with suppress(OSError):  # closed meanwhile
                self._wake.send(b"x")

    def close(self) -> None:
        """Close, on the main thread. `_wake` stays: another thread may be using it."""
        connections = [*(way.connection for way in self._out.values()), *(source.connection for source in self._in.values())]
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # forked data loaders have it too
        for one in (*self._listeners, self._woken, *connections):
            one.close()
        self._strangers.close()

    def _wait(self, outgoing: Iterable[_Outgoing], incoming: Iterable[_Incoming]) -> None:
        """Wait until something can move."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for going in outgoing:
            poll.register(going.connection, select.POLLOUT)
        for coming in incoming:
            if coming.source is not None:
                poll.register(coming.source.connection, select.POLLIN)
                continue
            for door in (*self._listeners, *self._strangers):
                poll.register(door, select.POLLIN)
        self.waiting = True
        try:
            poll.poll()
        finally:
            self.waiting = False
        if self._meeting.over():
            raise self._aborted()

    def _outgoing(self, peer: int, buffers: Buffers) -> _Outgoing:
        if peer in self._out:
            way = self._out[peer]
            rest, way.rest = way.rest, None
            return _Outgoing(peer, way.connection, buffers if rest is None else itertools.chain((rest,), buffers))
        address = self._address(peer)
        try:
            connection = _connect_locally(address) or _connect(address.host, address.port)
        except OSError as error:
            raise _lost(peer, error) from error

        self._out[peer] = _Way(connection)

        def introduced() -> Buffers:
            yield memoryview(address.token + self._member.to_bytes(4, "little"))
            yield from buffers

        return _Outgoing(peer, connection, introduced())

    def _accept(self) -> None:
        """Accept new connections, and read which member each is."""
        for member, connection in self._strangers.accept(self._listeners):
            if member in self._in:
                connection.close()
            else:
                self._in[member] = _ReadAhead(connection)

    def _aborted(self) -> GenerationAborted:
        return GenerationAborted(f"generation {self._meeting.generation} is over")


def _lost(peer: int, why: object) -> PeerLost:
    return PeerLost(worker_processes.CONNECTION_LOST(member=peer, why=why))


def _connect(host: str, port: int) -> socket.socket:
    connection = socket.socket(_family(host), socket.SOCK_STREAM)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(BlockingIOError):  # it goes on while this thread does; sent data waits for it
        connection.connect((host, port))
    return connection


def _connect_locally(address: PeerAddress) -> socket.socket | None:
    """Connect inside this node, if the listener is in it and has room for one more."""
    if not address.socket or address.local != _where():
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    try:
        connection.connect(address.socket)
    except OSError:
        connection.close()
        return None
    return connection


def _listen_locally() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0understudy-{secrets.token_hex(16)}")  # no file: a name in the network namespace, gone with the socket
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


@functools.cache
def _where() -> bytes:
    """Return the node of this worker, and its network namespace: several nodes may be on one machine, and one node, as in containers, in
    several namespaces.
    """
    try:
        boot, namespace = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return secrets.token_bytes(TOKEN)  # the same as no other's
    return f"{own_place().node} {boot} {namespace}".encode()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def own_place() -> Place:
    """Return where this worker is; the agent sets it."""
    node = os.environ.get("UNDERSTUDY_NODE", "")
    return Place(os.environ.get("UNDERSTUDY_DOMAIN", node), node)


def data_address() -> str:
    """Return the address where other workers reach this one for data: at the interface that the user gave Gloo, if any, else at the node's
    address.
    """
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        for address in psutil.net_if_addrs().get(name, []):
            if address.family in (socket.AF_INET, socket.AF_INET6) and not address.address.startswith("fe80"):
                return str(address.address)
    return node_address()

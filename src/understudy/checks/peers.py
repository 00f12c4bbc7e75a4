"""The protocol of two nodes that measure how fast and how faithful the network between them is. One TCP connection, two sides.

1. The server sends a nonce. The client answers with its own nonce, its request (`Request`), and a proof. If the proof is
   right, the server answers with its own. A proof is an HMAC (RFC 2104, with SHA-256) of a label of its side, both nonces and the request,
   with a key that is derived from the token: so each side knows that the other one has the token, and the token itself is never sent.
2. The client sends blocks of a stream that both can generate (`stream`), for the seconds that it requested. The server counts, compares
   each block's digest, and returns what it found (`Received`).
3. The server sends blocks in the same way, and the client compares.

Nothing is encrypted, and a host between them can change it: the data is worthless, and a changed block is noticed.
Everything has an end: `STALL` seconds without progress, a limit for the whole, and sizes that are known before anything is read.

Known limit: each direction is one connection that one thread serves, which is good for some 10 to 40 Gbit/s, depending on the CPUs.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import socket
import struct
import time
from dataclasses import astuple, dataclass
from typing import ClassVar

import xxhash

from understudy.checks import stream
from understudy.messages import network_check

GREETING, BUSY = b"USnode1\n", b"USbusy1\n"
NONCE = PROOF = 32  # bytes
YES, NO = b"Y", b"N"
STALL = 5.0  # seconds without progress
HANDSHAKE = 10.0  # seconds that it may take
MOST_SECONDS = 60.0  # in one direction
MOST_BYTES = 1 << 40  # in one direction
VARIETY = 16  # different blocks, which are then repeated: generating them takes longer than sending
_BLOCK, _END = b"B", b"E"
_KEY = b"key of understudy check-node"


class Broken(Exception):
    """The other side, or the network, does not follow the protocol. The text describes how, without naming the peer."""


@dataclass(frozen=True)
class Request:
    seconds: float  # of sending, in each direction
    seed: int

    form: ClassVar = struct.Struct("!dQ")

    def packed(self) -> bytes:
        return self.form.pack(*astuple(self))

    @classmethod
    def read(cls, data: bytes) -> Request:
        found = cls(*cls.form.unpack(data))
        if not 0 < found.seconds <= MOST_SECONDS:  # nor is NaN
            raise Broken(network_check.BAD_REQUEST(seconds=found.seconds))
        return found


@dataclass(frozen=True)
class Received:
    count: int  # blocks
    wrong: int  # of these
    seconds: float

    form: ClassVar = struct.Struct("!QQd")

    def packed(self) -> bytes:
        return self.form.pack(*astuple(self))

    @classmethod
    def read(cls, data: bytes) -> Received:
        found = cls(*cls.form.unpack(data))
        if not (found.wrong <= found.count <= MOST_BYTES // stream.BLOCK and 0 <= found.seconds < math.inf):
            raise Broken(network_check.BAD_COUNT(count=found.count, wrong=found.wrong, seconds=found.seconds))
        return found

    @property
    def gbits(self) -> float:
        """10^9 bits a second."""
        return 8e-9 * self.count * stream.BLOCK / max(self.seconds, 1e-9)


class Line:
    """A socket with a deadline. Every method raises `Broken`."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._socket = connection
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """Set the deadline, in seconds from now."""
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._patience()
            try:
                view = view[self._socket.send(view) :]
            except TimeoutError:
                self._patience()  # which may have been the shorter limit
                raise Broken(network_check.TAKES_NOTHING(seconds=STALL)) from None
            except OSError as error:
                raise Broken(network_check.BROKEN(reason=error.strerror)) from error

    def receive(self, count: int) -> bytes:
        data = bytearray(count)
        self.fill(memoryview(data))
        return bytes(data)

    def fill(self, view: memoryview) -> None:
        while view:
            self._patience()
            try:
                got = self._socket.recv_into(view)
            except TimeoutError:
                self._patience()  # which may have been the shorter limit
                raise Broken(network_check.SENDS_NOTHING(seconds=STALL)) from None
            except OSError as error:
                raise Broken(network_check.BROKEN(reason=error.strerror)) from error
            if not got:
                raise Broken(network_check.CLOSED())
            view = view[got:]

    def _patience(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise Broken(network_check.ENDLESS(seconds=self._seconds))
        self._socket.settimeout(min(STALL, left))


class Blocks:
    """The stream of blocks in one direction."""

    def __init__(self, seed: int) -> None:
        self._blocks = [bytes(stream.block(seed, number)) for number in range(VARIETY)]
        self._digests = [xxhash.xxh3_128_digest(block) for block in self._blocks]

    def send(self, line: Line, seconds: float) -> None:
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end and count < MOST_BYTES // stream.BLOCK:
            line.send(_BLOCK)
            line.send(self._blocks[count % VARIETY])
            count += 1
        line.send(_END)

    def receive(self, line: Line) -> Received:
        count = wrong = 0
        block = bytearray(stream.BLOCK)
        began = time.monotonic()
        while (mark := line.receive(1)) == _BLOCK:
            if count >= MOST_BYTES // stream.BLOCK:
                raise Broken(network_check.TOO_MUCH_SENT(most=MOST_BYTES))
            line.fill(memoryview(block))
            wrong += xxhash.xxh3_128_digest(block) != self._digests[count % VARIETY]
            count += 1
        if mark != _END:
            raise Broken(network_check.BAD_MARK(mark=mark))
        return Received(count, wrong, time.monotonic() - began)


def both(seed: int) -> tuple[Blocks, Blocks]:
    """Return the blocks to the server, and those from it."""
    return Blocks(seed), Blocks(seed ^ 1)


def proof(token: str, label: bytes, greeted: bytes, answered: bytes, request: bytes) -> bytes:
    """Return a side's proof. `label`: b"client" or b"server"; then the nonces of server and client."""
    key = hmac.new(token.encode(), _KEY, hashlib.sha256).digest()
    return hmac.new(key, label + greeted + answered + request, hashlib.sha256).digest()


def introduce(line: Line, token: str, request: Request) -> None:
    """Do the client's part of the handshake. Raises `Broken`."""
    greeting = line.receive(len(GREETING))
    if greeting == BUSY:
        raise Broken(network_check.BUSY())
    if greeting != GREETING:
        raise Broken(network_check.NOT_OURS())
    greeted, answered, asked = line.receive(NONCE), os.urandom(NONCE), request.packed()
    line.send(answered + asked + proof(token, b"client", greeted, answered, asked))
    if line.receive(1) != YES:
        raise Broken(network_check.WRONG_TOKEN())
    if not hmac.compare_digest(line.receive(PROOF), proof(token, b"server", greeted, answered, asked)):
        raise Broken(network_check.NO_TOKEN_THERE())


def admit(line: Line, tokens: tuple[str, ...]) -> Request:
    """Do the server's part of the handshake; return the client's request. Raises `Broken`."""
    greeted = os.urandom(NONCE)
    line.send(GREETING + greeted)
    answered, asked, shown = line.receive(NONCE), line.receive(Request.form.size), line.receive(PROOF)
    known = [token for token in tokens if hmac.compare_digest(shown, proof(token, b"client", greeted, answered, asked))]
    if not known:
        line.send(NO)
        raise Broken(network_check.UNKNOWN_TOKEN())
    line.send(YES + proof(known[0], b"server", greeted, answered, asked))
    return Request.read(asked)

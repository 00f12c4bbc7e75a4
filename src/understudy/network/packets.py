"""The packets by which hosts probe each other: a question with a nonce, and the answer with the same nonce.

A packet is 57 bytes long: magic, kind, the rails on which the sender reaches any host, nonce, and an HMAC (RFC 2104, with SHA-256) of all
this and of the addresses of sender and receiver, with a key that is derived from the hosts' token. The token itself is never sent. A packet
that was repeated, reflected, or moved to another rail does not fit the addresses, or answers no open question. Nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

NONCE = 16  # bytes
_MAGIC = b"USR1"
_FORM = struct.Struct(f"!4sBI{NONCE}s32s")
_KEY = b"key of understudy network"
SIZE = _FORM.size


class Kind(IntEnum):
    QUESTION = 1
    ANSWER = 2


class Malformed(Exception):
    """This is no packet of ours."""


class Unauthenticated(Exception):
    """The packet was made without the token, or for other addresses."""


@dataclass(frozen=True)
class Packet:
    kind: Kind
    nonce: bytes
    reaches: int = 0  # the rails on which its sender reaches any host, as bits: 1 is the first rail


class Codec:
    """Makes and reads packets. `tokens`: the first one signs, all are accepted."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._keys = [hmac.new(token.encode(), _KEY, hashlib.sha256).digest() for token in tokens]

    def packed(self, packet: Packet, sender: str, receiver: str) -> bytes:
        """Return the bytes to send. `sender`, `receiver`: IPv4 addresses."""
        return _FORM.pack(_MAGIC, packet.kind, packet.reaches, packet.nonce, _proof(self._keys[0], packet, sender, receiver))

    def read(self, data: bytes, sender: str, receiver: str) -> Packet:
        """Return the packet in `data`. Raises `Malformed`, `Unauthenticated`."""
        if len(data) != SIZE:
            raise Malformed
        magic, kind, reaches, nonce, shown = _FORM.unpack(data)
        if magic != _MAGIC or kind not in (Kind.QUESTION, Kind.ANSWER):
            raise Malformed
        packet = Packet(Kind(kind), nonce, reaches)
        if not any(hmac.compare_digest(shown, _proof(key, packet, sender, receiver)) for key in self._keys):
            raise Unauthenticated
        return packet


def question(reaches: int = 0) -> Packet:
    return Packet(Kind.QUESTION, os.urandom(NONCE), reaches)


def _proof(key: bytes, packet: Packet, sender: str, receiver: str) -> bytes:
    addresses = socket.inet_aton(sender) + socket.inet_aton(receiver)
    head = _FORM.pack(_MAGIC, packet.kind, packet.reaches, packet.nonce, b"")
    return hmac.new(key, head + addresses, hashlib.sha256).digest()

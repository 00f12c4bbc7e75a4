"""A copy as it is handed over: a short body, and parts that mostly stay the same from step to step.

Most of a copy's bytes are states of random generators, and most of these do not move in a step, or occur in it twice (now, at the top of an
iteration, at the start of the epoch). So every long value is a part of its own: each is in the copy once, goes over a connection
only when it was not in the copy before (`buddies.Channel`), and its digest is made once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from understudy.worker.codec import Part, decode, encode
from understudy.worker.copies import Boundary, LocalCopy
from understudy.worker.digests import digest_bytes
from understudy.worker.errors import NotTheSame

LONG = 512  # bytes of a value that is a part of its own


@dataclass(frozen=True)
class Sealed:
    """The body with a digest in front, and the parts, by number. The body has the digests of the parts."""

    body: bytes
    parts: list[bytes]

    def packed(self) -> bytes:
        return encode([self.body, self.parts])

    @staticmethod
    def unpacked(data: bytes) -> Sealed:
        return Sealed(*decode(data))


def seal(copy: LocalCopy) -> Sealed:
    parts: dict[bytes, int] = {}
    boundary = None
    if copy.boundary is not None:
        b = copy.boundary
        boundary = [b.loop, b.iteration, _taken_out(b.position, parts), _taken_out(b.streams, parts), b.batch]
    fields = [
        copy.transaction,
        copy.place,
        copy.step,
        _taken_out(copy.streams, parts),
        boundary,
        _taken_out(copy.values, parts),
        copy.tensors,
        copy.tensor_digests,
        copy.value_digests,
        copy.results,
    ]
    body = encode([fields, [_digest(part) for part in parts]])
    return Sealed(digest_bytes(body).to_bytes(8, "little") + body, list(parts))


def unseal(sealed: Sealed) -> LocalCopy:
    """Raises `NotTheSame` if it is not what was sealed."""
    body = sealed.body[8:]
    if digest_bytes(body) != int.from_bytes(sealed.body[:8], "little"):
        raise NotTheSame("the digest of a buddy copy does not agree with its content")
    fields, digests = decode(body)
    if [digest_bytes(part) for part in sealed.parts] != digests:
        raise NotTheSame("the digests of a buddy copy's parts do not agree with their content")
    transaction, place, step, streams, raw, values, tensors, tensor_digests, value_digests, results = _put_back(fields, sealed.parts)
    boundary = Boundary(*raw) if raw is not None else None
    return LocalCopy(transaction, place, step, streams, boundary, values, tensors, tensor_digests, value_digests, results)


@lru_cache(64)
def _digest(part: bytes) -> int:
    return digest_bytes(part)


def _taken_out(value: Any, parts: dict[bytes, int]) -> Any:
    """The same value with `Part`s in place of long bytes, which are in `parts` then."""
    kind = type(value)
    if kind is bytes and len(value) >= LONG:
        return Part(parts.setdefault(value, len(parts)))
    if kind is dict:
        return {key: _taken_out(item, parts) for key, item in value.items()}
    return [_taken_out(item, parts) for item in value] if kind is list else value


def _put_back(value: Any, parts: list[bytes]) -> Any:
    kind = type(value)
    if kind is Part:
        return parts[value.number]
    if kind is dict:
        return {key: _put_back(item, parts) for key, item in value.items()}
    return [_put_back(item, parts) for item in value] if kind is list else value

"""Buddy copies: the rank-local state of a rank, kept in the memory of two others, so that it survives its owner.

A hand-over sends a rank's copy to its buddies and receives those of the ranks whose buddy it is. In a vote, the agreement
follows only after that: whoever has passed a vote knows that every rank's copy of that transaction is in place. The first
message of a hand-over has a fixed size that holds an ordinary copy whole; a longer one is followed by the rest.

The buddies of a rank are on the next node where there is one. A holder keeps the copies of the last two transactions, because
a recovery may go back by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import AllreduceOptions, ReduceOp

from understudy.core.nouns import Copy
from understudy.worker.errors import GenerationAborted

FIRST = 32 << 10  # bytes of the first message of a hand-over
BUDDIES = 2
_TAG_COPY, _TAG_REST = 1, 2


@dataclass(frozen=True)
class Handed:
    """A copy as it was handed over. `late`: handed over again after its owner's vote."""

    transaction: int
    data: bytes
    late: bool


class Shelf:
    """The copies that this worker holds for others, and the records of their set-ups. Read by the control thread too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copies: dict[int, dict[int, Handed]] = {}
        self._setups: dict[int, bytes] = {}

    def put(self, rank: int, handed: Handed) -> None:
        with self._lock:
            copies = self._copies.setdefault(rank, {})
            copies[handed.transaction] = handed
            for old in [t for t in copies if t < handed.transaction - 1]:
                del copies[old]

    def drop(self, start: int) -> None:
        """Forgets copies of transaction `start` and later: they belong to an attempt that is redone."""
        with self._lock:
            for copies in self._copies.values():
                for transaction in [t for t in copies if t >= start]:
                    del copies[transaction]

    def put_setup(self, rank: int, record: bytes) -> None:
        with self._lock:
            self._setups[rank] = record

    def setup(self, rank: int) -> bytes | None:
        with self._lock:
            return self._setups.get(rank)

    def get(self, rank: int, transaction: int) -> Handed | None:
        with self._lock:
            return self._copies.get(rank, {}).get(transaction)

    def index(self) -> tuple[Copy, ...]:
        with self._lock:
            return tuple(Copy(rank, t) for rank, copies in sorted(self._copies.items()) for t in sorted(copies))


def offsets(world_size: int, workers_per_node: int) -> list[int]:
    """How far the buddies of every rank are from it, the first ones on the next node where there is one."""
    wanted = [workers_per_node, workers_per_node + 1, 1, 2]
    found: list[int] = []
    for offset in (o % world_size for o in wanted):
        if offset and offset not in found:
            found.append(offset)
    return found[:BUDDIES]


class Channel:
    """The runtime's own connection among the ranks of one generation: hand-overs, votes, and state on its way to newcomers.

    `over` says whether the generation has been aborted; then nothing that was received here counts (see `gloo_waits`), and every
    method raises `GenerationAborted`.
    """

    def __init__(self, backend: Any, rank: int, world_size: int, workers_per_node: int, over: Callable[[], bool]) -> None:
        self.backend = backend
        self._over = over
        self.rank = rank
        self.world_size = world_size
        steps = offsets(world_size, workers_per_node)
        self.buddies = [(rank + step) % world_size for step in steps]
        self._from = [(rank - step) % world_size for step in steps]
        self._out = torch.zeros(FIRST, dtype=torch.uint8)
        self._in = [torch.zeros(FIRST, dtype=torch.uint8) for _ in steps]
        self._maximum = AllreduceOptions()
        self._maximum.reduceOp = ReduceOp(ReduceOp.MAX)

    def hand_over(self, data: bytes) -> dict[int, bytes]:
        """Sends `data` to the buddies; gives what the ranks sent whose buddy this one is. Raises `RuntimeError` on a failure."""
        size = len(data)
        room = FIRST - 8
        head = size.to_bytes(8, "little") + data[:room]
        self._out[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        works = [self.backend.send([self._out], peer, _TAG_COPY) for peer in self.buddies]
        if size > room:
            rest = torch.frombuffer(bytearray(data[room:]), dtype=torch.uint8)
            works += [self.backend.send([rest], peer, _TAG_REST) for peer in self.buddies]
        arriving = [self.backend.recv([buffer], peer, _TAG_COPY) for buffer, peer in zip(self._in, self._from, strict=True)]
        found = {}
        for work, buffer, peer in zip(arriving, self._in, self._from, strict=True):
            work.wait()
            self._check()
            raw = buffer.numpy()
            length = int.from_bytes(raw[:8].tobytes(), "little")
            content = raw[8 : 8 + min(length, room)].tobytes()
            if length > room:
                rest_in = torch.empty(length - room, dtype=torch.uint8)
                self.backend.recv([rest_in], peer, _TAG_REST).wait()
                content += rest_in.numpy().tobytes()
            found[peer] = content
        for work in works:
            work.wait()
        self._check()
        return found

    def agree(self, flags: list[int]) -> list[int]:
        """The element-wise maximum over all ranks. Returns only when every rank has called it."""
        if self.world_size == 1:
            return flags
        tensor = torch.tensor(flags, dtype=torch.int32)
        self.backend.allreduce([tensor], self._maximum).wait()
        self._check()
        result: list[int] = tensor.tolist()
        return result

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's `data`, in order of ranks."""
        if self.world_size == 1:
            return [data]
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        self.backend.allgather([sizes], [torch.tensor([len(data)])]).wait()
        self._check()
        longest = max(int(size) for size in sizes)
        mine = torch.zeros(longest, dtype=torch.uint8)
        mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.world_size)]
        self.backend.allgather([parts], [mine]).wait()
        self._check()
        return [part.numpy()[: int(size)].tobytes() for part, size in zip(parts, sizes, strict=True)]

    def _check(self) -> None:
        if self._over():
            raise GenerationAborted("the generation is over: what came last may be anything")

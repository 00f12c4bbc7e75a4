"""Buddy copies: the rank-local state of a rank, kept in the memory of two others, so that it survives its owner.

A hand-over sends a rank's copy to its buddies and receives those of the ranks whose buddy it is. In a vote, the agreement
follows only after that: whoever has passed a vote knows that every rank's copy of that transaction is in place.

Who is whose buddy follows from where the ranks are (`core.buddies`). A holder keeps the copies of the last two transactions, because
a recovery may go back by one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from understudy.core.buddies import Place, buddies
from understudy.core.model import Copy
from understudy.worker.codec import decode, encode
from understudy.worker.errors import Misuse
from understudy.worker.peers import Peers, frame, read_frame

RADIX = 8  # of an agreement
HAND_OVER, AGREEMENT, GATHERING = b"h", b"a", b"g"  # in front of what is sent: ranks at different places of a script notice it
_WHAT = {
    HAND_OVER: "votes on a transaction",
    AGREEMENT: "votes on a transaction",
    GATHERING: "compares states, between two transactions or at its end",
}

Value = TypeVar("Value")


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


def _greater(mine: list[int], theirs: list[int]) -> list[int]:
    if len(mine) != len(theirs):
        raise ValueError(f"ranks vote with {len(mine)} and with {len(theirs)} flags")
    return list(map(max, mine, theirs))


class Channel:
    """What the ranks of one generation tell each other over `peers`: hand-overs, votes, comparisons.

    Every method raises `PeerLost` or `GenerationAborted` on a failure.
    """

    def __init__(self, peers: Peers, rank: int, places: Sequence[Place]) -> None:
        """`places`: of the workers of all ranks."""
        self.peers = peers
        self.rank = rank
        self.places = places
        self.world_size = len(places)
        table = buddies(places)
        self.buddies = table[rank]
        self._from = [other for other, keepers in enumerate(table) if rank in keepers]

    def hand_over(self, data: bytes) -> dict[int, bytes]:
        """Sends `data` to the buddies; gives what the ranks sent whose buddy this one is."""
        found: dict[int, bytes] = {}
        self._exchange(HAND_OVER, dict.fromkeys(self.buddies, data), self._from, found)
        return found

    def _exchange(self, kind: bytes, sending: Mapping[int, bytes], senders: Iterable[int], found: dict[int, bytes]) -> None:
        """Sends to some peers, and puts into `found` what others send at the same point of the script. Raises `Misuse` if they are
        at another
        one, as when the ranks of a script run different numbers of transactions.
        """
        self.peers.exchange(
            {peer: frame(kind + data) for peer, data in sending.items()}, {peer: read_frame(found, peer) for peer in senders}
        )
        for peer in senders:
            theirs = found[peer][:1]
            if theirs != kind:
                raise Misuse(
                    f"rank {self.rank} {_WHAT[kind]}, while rank {peer} {_WHAT.get(theirs, 'does something else')}: every rank must "
                    f"run the same "
                    "transactions, in the same order and number. One of them may have left its loop earlier"
                )
            found[peer] = found[peer][1:]

    def agree(self, flags: list[int]) -> list[int]:
        """The element-wise maximum over all ranks. Returns only when every rank has called it."""
        return self._spread(AGREEMENT, flags, _greater)

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's `data`, in order of ranks."""
        found = self._spread(GATHERING, {self.rank: data}, lambda mine, theirs: mine | theirs)
        return [found[rank] for rank in range(self.world_size)]

    def _spread(self, kind: bytes, value: Value, merge: Callable[[Value, Value], Value]) -> Value:
        """Merges the values of all ranks, each of them perhaps more than once.

        In round k a rank tells those 1, 2, ... 7 times 8^k further what it knows by now: the dissemination of Hensgen, Finkel and Manber
        (1988) with 8 in place of 2, because waiting for another round costs more than a few short messages.
        """
        distance = 1
        while distance < self.world_size:
            steps = range(distance, min(RADIX * distance, self.world_size), distance)
            data, found = encode(value), dict[int, bytes]()
            sending = {(self.rank + step) % self.world_size: data for step in steps}
            self._exchange(kind, sending, [(self.rank - step) % self.world_size for step in steps], found)
            for theirs in found.values():
                value = merge(value, decode(theirs))
            distance *= RADIX
        return value

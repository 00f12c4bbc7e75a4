"""Exchanges between the ranks of a generation at the same points of their scripts: hand-overs, votes, comparisons.

A hand-over sends a rank's copy to its buddies and receives those of the ranks whose buddy it is. In a vote, the agreement follows only
after that: a rank that has passed a vote knows that every rank's copy of that transaction is in place. Where no agreement follows, a
receipt does: without one a rank could go on, and be lost, before its buddies have read what it has sent.

The buddies of a rank depend on where the ranks are (`core.buddies`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from operator import or_
from typing import Any, TypeVar

from understudy.core.buddies import Place, buddies
from understudy.messages import transactions, worker_processes
from understudy.worker.encoding.codec import decode, encode
from understudy.worker.encoding.messages import TRANSACTION
from understudy.worker.errors import BadMessage, UsageError
from understudy.worker.transport.peers import Buffers, Peers, framed, read_frame

RADIX = 8  # of an agreement
# Sent before the data: ranks at different places of a script notice it.
HAND_OVER, RECEIPT, AGREEMENT, GATHERING, SEQUENCES = b"h", b"r", b"a", b"g", b"s"
TRAIL, RESULT = b"t", b"o"  # no rank waits for these: they may precede any of the others
LONGEST_TRAIL = 1 << 20  # bytes; what comes after that is not kept
_WHAT = {
    HAND_OVER: "votes on a transaction",
    AGREEMENT: "votes on a transaction",
    SEQUENCES: "votes on a transaction",
    GATHERING: "compares states, between two transactions or at its end",
}

Value = TypeVar("Value")


def _joined(mine: dict[int, bytes], data: bytes) -> dict[int, bytes]:
    theirs = _decoded(data)
    if type(theirs) is not dict or not all(type(rank) is int and type(data) is bytes for rank, data in theirs.items()):
        raise BadMessage(worker_processes.NO_TABLE())
    return mine | theirs


def _decoded(data: bytes) -> Any:
    try:
        return decode(data)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise BadMessage(worker_processes.UNREADABLE(error=error)) from error


@functools.cache
def ballot_layout(numbers: int, bits: int) -> struct.Struct:
    """Return the layout of what one rank sends another in a vote."""
    return struct.Struct(f"<{numbers}q{bits}Q")


class Channel:
    """Exchanges among the ranks of one generation over `peers`: hand-overs, votes, comparisons.

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
        self._ahead = b""  # goes with the next hand-over
        self.trails: dict[int, bytes] = {}  # of the ranks whose buddy this one is, each of one step
        self.results: dict[int, bytes] = {}  # their last ones, as `step.result_after_vote` sends them

    def hand_over(self, data: bytes) -> dict[int, bytes]:
        """Send `data` to the buddies; return what the ranks sent whose buddy this one is."""
        found: dict[int, bytes] = {}
        self._exchange(HAND_OVER, data, self.buddies, self._from, found)
        return found

    def receipt(self) -> None:
        """Return when the buddies have kept their data, after a hand-over whose data this rank has kept."""
        self._exchange(RECEIPT, b"", self._from, self.buddies, {})

    def _exchange(self, kind: bytes, data: bytes, receivers: Iterable[int], senders: Iterable[int], found: dict[int, bytes]) -> None:
        """Send `data` to some peers, and put into `found` what others send at the same point of the script. Raises `UsageError` if they
        are at another one, as when the ranks of a script run different numbers of transactions.
        """
        whole, kinds = framed(data, kind), dict[int, bytes]()
        if self._ahead and kind == HAND_OVER:
            whole, self._ahead = memoryview(b"".join((self._ahead, whole))), b""
        self.peers.exchange({peer: iter((whole,)) for peer in receivers}, {peer: self._frame(found, peer, kinds) for peer in senders})
        for peer, theirs in kinds.items():
            if theirs != kind:
                mine, other = _WHAT[kind], _WHAT.get(theirs, "does something else")
                raise UsageError(transactions.OTHER_TRANSACTIONS(rank=self.rank, mine=mine, peer=peer, theirs=other))

    def _frame(self, found: dict[int, bytes], peer: int, kinds: dict[int, bytes]) -> Buffers:
        """Return the next frame of a peer that this rank waits for; trails and results before it are kept."""
        while True:
            yield from read_frame(found, peer, kinds)
            if kinds[peer] not in (TRAIL, RESULT):
                return
            kind, data = kinds.pop(peer), found.pop(peer)
            if kind == RESULT:
                self.results[peer] = data
                continue
            known = self.trails.get(peer, b"")
            if known[:TRANSACTION] != data[:TRANSACTION]:
                self.trails[peer] = data
            elif len(known) < LONGEST_TRAIL:
                self.trails[peer] = known + data[TRANSACTION:]

    def tell(self, data: bytes, kind: bytes = TRAIL) -> bool:
        """Send a part of this rank's trail, or its last result, to its buddies without waiting; return whether all connections took it. Any
        thread, but none while another is in an exchange."""
        whole = framed(data, kind)
        taken = [self.peers.tell(buddy, whole) for buddy in self.buddies]
        return all(taken)

    def tell_with_next(self, trail: bytes) -> None:
        """Send it together with the next hand-over."""
        self._ahead = bytes(framed(trail, TRAIL))

    def take_trails(self) -> dict[int, bytes]:
        """Return the trails of the ranks whose buddy this one is, at the end of the generation, with what was not read yet."""
        for peer in self._from:
            self.peers.take_rest(peer, self._frame({}, peer, {}))
        return self.trails

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """Return the element-wise maximum over all ranks. Returns only when every rank has called it. `numbers`: of 63 bits and a sign."""
        return self.vote(numbers, ())[0]

    def vote(self, numbers: Sequence[int], bits: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the element-wise maximum of `numbers` over all ranks, and of each element of `bits` those that any rank has set.
        Otherwise as `agree`. `bits`: of 64 bits, without a sign.
        """
        layout, split = ballot_layout(len(numbers), len(bits)), len(numbers)

        def merged(mine: tuple[int, ...], data: bytes) -> tuple[int, ...]:
            if len(data) != layout.size:
                raise BadMessage(worker_processes.OTHER_VOTE(size=len(data), wanted=layout.size))
            theirs = layout.unpack(data)
            return (*map(max, mine[:split], theirs), *map(or_, mine[split:], theirs[split:]))

        found = self._spread(AGREEMENT, (*numbers, *bits), lambda value: layout.pack(*value), merged)
        return list(found[:split]), list(found[split:])

    def gather(self, data: bytes, kind: bytes = GATHERING) -> list[bytes]:
        """Return every rank's `data`, in order of ranks."""
        found = self._spread(kind, {self.rank: data}, encode, _joined)
        if missing := set(range(self.world_size)) - found.keys():
            raise BadMessage(worker_processes.INCOMPLETE(rank=min(missing)))
        return [found[rank] for rank in range(self.world_size)]

    def _spread(self, kind: bytes, value: Value, packed: Callable[[Value], bytes], merge: Callable[[Value, bytes], Value]) -> Value:
        """Merge the values of all ranks, each of them perhaps more than once. `merge` gets the result of `packed` for another rank's
        value.

        In round k a rank sends those 1, 2, ... 7 times 8^k further what it knows by now: the dissemination of Hensgen, Finkel and
        Manber (1988) with 8 in place of 2, because waiting for another round costs more than a few short messages.
        """
        distance = 1
        while distance < self.world_size:
            steps = range(distance, min(RADIX * distance, self.world_size), distance)
            after, before = ([(self.rank + sign * step) % self.world_size for step in steps] for sign in (1, -1))
            found: dict[int, bytes] = {}
            self._exchange(kind, packed(value), after, before, found)
            for theirs in found.values():
                value = merge(value, theirs)
            distance *= RADIX
        return value

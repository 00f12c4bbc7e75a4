"""What a rank tells its buddies, while a step goes on, of what it puts into its collectives.

If the rank is lost, its newcomer computes the step that the lost worker had begun. A survivor has its own first attempt to compare a redo
with; a newcomer has only what the lost worker had told by then. Nobody waits for it: a message is sent where the connection takes it at
once, and the buddies read it with the next vote, or when the generation is over (`Channel`).

Of each collective a *mark* is told, from which nothing but equality can be read.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from understudy.messages import worker_processes
from understudy.worker.errors import BadMessage
from understudy.worker.generation.membership import Membership

GAP = 0.04  # seconds from one message to the next: each costs some 40 us for each buddy. The vote takes with it what was not told
_MARK = struct.Struct("<QQQQ?")
_HEAD = struct.Struct("<q")  # the transaction


class Mark(NamedTuple):
    """Of one collective. All but `size` are digests."""

    lane: int
    call: int  # operator, arguments, types and shapes
    given: int  # what it reads; 0 where that cannot be read
    size: int  # bytes of it
    usual: bool  # the same call was issued at this place of the last step


def marks_in(data: bytes, transaction: int) -> Iterator[Mark]:
    """What was told of this transaction. Raises `BadMessage`."""
    if not data:
        return
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % _MARK.size:
        raise BadMessage(worker_processes.UNREADABLE(error=f"{len(data)} bytes are no trail"))
    if _HEAD.unpack_from(data)[0] == transaction:
        yield from (Mark(*fields) for fields in _MARK.iter_unpack(data[_HEAD.size :]))


class Trail:
    """Of the running attempt. Not thread-safe."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._transaction = -1
        self._untold: list[Callable[[], Mark | None]] = []
        self._last = 0.0  # when something was told, on the monotonic clock
        self._over = True

    def begin(self, transaction: int, *, silent: bool) -> None:
        """`silent`: a newcomer would issue others."""
        self._transaction, self._untold, self._over = transaction, [], silent

    def add(self, mark: Callable[[], Mark | None]) -> None:
        """`mark` is asked for when it is told: several together take less time. It gives None as long as it is not known."""
        if not self._over:
            self._untold.append(mark)
            if time.monotonic() - self._last >= GAP:
                self.tell()

    def tell(self) -> None:
        """Sends what was not sent yet. What a connection does not take ends the trail: marks count only without a gap."""
        if (channel := self._membership.channel) is not None and (data := self._taken()):
            self._over = not channel.tell(data)
            self._last = time.monotonic()

    def end(self) -> None:
        """The vote follows, and takes the rest with it."""
        if (channel := self._membership.channel) is not None and (data := self._taken()):
            channel.tell_with_next(data)
        self._over = True

    def _taken(self) -> bytes:
        """What is known of the rest, without a gap; empty: nothing."""
        known = []
        for one in self._untold:
            if (mark := one()) is None:
                break
            known.append(mark)
        self._untold = self._untold[len(known) :]
        return b"".join((_HEAD.pack(self._transaction), *(_MARK.pack(*mark) for mark in known))) if known else b""

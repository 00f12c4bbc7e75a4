"""Sends marks of a rank's collective inputs to its buddies while a step goes on.

If the rank is lost, its newcomer computes the step that the lost worker had begun. A survivor has its own first attempt to compare a
redo with; a newcomer has only what the lost worker had sent by then. No rank waits for a mark: a message is sent if the connection
takes it at once, and the buddies read it with the next vote, or when the generation is over (`Channel`).

What a collective reads on an accelerator is known later: a thread sends its mark then, if the vote has not come yet.

One *mark* is sent for each collective: it supports only a test for equality.

The kernel delivers what a process had sent before it was killed, so the buddies read those marks. They are published with the copy, and the
first attempt of the newcomer is compared with them like a redo. A GPU thread sends what has arrived; what has not arrived when the vote
begins is not sent.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from understudy.messages import worker_processes
from understudy.worker.errors import BadMessage
from understudy.worker.generation.membership import Membership

GAP = 0.04  # seconds from one message to the next: each costs some 40 us for each buddy. The rest goes with the vote
_MARK = struct.Struct("<QQQQ?")
_HEAD = struct.Struct("<q")  # the transaction


class Mark(NamedTuple):
    """A mark of one collective. All but `size` and `usual` are digests."""

    lane: int
    call: int  # operator, arguments, types and shapes
    given: int  # its input; 0 if that cannot be read
    size: int  # bytes of it
    usual: bool  # the same call was issued at this place in the last step


def marks_in(data: bytes, transaction: int) -> Iterator[Mark]:
    """Yield the marks of this transaction. Raises `BadMessage`."""
    if not data:
        return
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % _MARK.size:
        raise BadMessage(worker_processes.UNREADABLE(error=f"{len(data)} bytes are no trail"))
    if _HEAD.unpack_from(data)[0] == transaction:
        yield from (Mark(*fields) for fields in _MARK.iter_unpack(data[_HEAD.size :]))


class Trail:
    """The trail of the running attempt. Not thread-safe, and no caller may be in an exchange with the buddies."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._transaction = -1
        self._pending: list[Callable[[], Mark | None]] = []
        self._last = 0.0  # when something was sent, on the monotonic clock
        self._over = True

    def begin(self, transaction: int, *, silent: bool) -> None:
        """Begin a trail. `silent`: send nothing, because a newcomer would issue other collectives."""
        self._transaction, self._pending, self._over = transaction, [], silent

    def add(self, mark: Callable[[], Mark | None]) -> None:
        """Queue a mark. It is evaluated when it is sent, because several together take less time; None: not known yet."""
        if not self._over:
            self._pending.append(mark)
            if time.monotonic() - self._last >= GAP:
                self.tell()

    def tell(self) -> None:
        """Send the pending marks. What a connection does not take ends the trail: marks count only without a gap."""
        if (channel := self._membership.channel) is not None and (data := self._taken()):
            self._last = time.monotonic()
            if not channel.tell(data):
                self.stop()

    def end(self) -> None:
        """Send the remaining marks with the vote that follows."""
        if (channel := self._membership.channel) is not None and (data := self._taken()):
            channel.tell_with_next(data)
        self.stop()

    def stop(self) -> None:
        """Send nothing more of this attempt."""
        self._over, self._pending = True, []

    def _taken(self) -> bytes:
        """Return the known pending marks, without a gap; empty: nothing."""
        known = []
        for one in self._pending:
            if (mark := one()) is None:
                break
            known.append(mark)
        self._pending = self._pending[len(known) :]
        return b"".join((_HEAD.pack(self._transaction), *(_MARK.pack(*mark) for mark in known))) if known else b""


class LateMarks:
    """A thread that sends marks which become known while the script issues nothing more."""

    def __init__(self, send: Callable[[], bool]) -> None:
        """`send`: send the marks that are known now; return whether there may be more."""
        self._send = send
        self._more = threading.Event()
        self._running = False

    def expect(self) -> None:
        """Call `send` from time to time from now on. One thread at a time."""
        self._more.set()
        if not self._running:
            self._running = True
            threading.Thread(target=self._run, name="understudy-late-marks", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._more.wait()
            time.sleep(GAP)
            self._more.clear()
            if self._send():
                self._more.set()

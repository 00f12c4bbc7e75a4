"""Checksums of a job's events in the journal: each covers its event and the checksum before it, so they are a chain.

What it detects:

- A row in the middle that was changed, lost or exchanged: when the journal is read, because the chain does not match.
- Rows that are missing at the end, or a restored older copy, whose chain is intact. So the orchestrator reports its position in the journal
  to the nodes' agents (`Journalled`), and an agent shows the highest such `Position` whenever it connects, also to the next orchestrator.
  If a journal does not have this event with this checksum, it is not the one that the agent's workers depend on: the job is put aside
  before the agent has joined and anything is decided about its workers.

A position also has the identity of its job, which is created when the job begins and is part of its first row. An agent that shows another
identity belongs to an earlier job with the same address and secret, whose command was not ended on that node. Only that agent is rejected,
and it may try again: nothing is decided about its workers or about this job. If an earlier version has begun the job, or is the agent,
there is no identity, and only the chain is compared.

A position is the number and checksum of an event, not a generation, for two reasons: every missing event is detected, including an
operator's requests, which no agent repeats; and a journal that continues from an older copy may use the number again, but never with the
same checksum.

There are no false alarms, because a position is reported only after its event is written, and in the order of the events. An orchestrator
that is killed leaves a journal that has all that it reported; its successor has read all of it (`database.py`, `quorum`). No decision is
sent before its event is written (`decisions.py`).

None is missed, because a decision about the holder of a rank is sent after the position of its event, on the same connection. An agent that
has executed it knows the position.

Limits: this protects against accidents, not against an attacker who computes checksums. Events that were written shortly before the
orchestrator's host lost power may not be on the disk (SQLite's `synchronous=NORMAL`); if agents know of them, that is detected as well.
Events of an earlier version have no checksum; the first one after them covers them, and their positions are compared by number.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import NamedTuple

SIZE = 8  # bytes: one accident in 10 ** 19 is not detected
_SHOWN = re.compile(r"(\d{1,15})-([0-9a-f]{16})(?:-([0-9a-f]{16}))?", re.ASCII)


class Position(NamedTuple):
    """The `number` of an event of a job, from 1, and its hexadecimal `checksum`; or the beginning.

    Between orchestrators and agents it also has the job's `identity` (`settings.py`).
    """

    number: int = 0
    checksum: str = "0" * (2 * SIZE)
    identity: str = ""

    def after(self, now: float, event: str) -> Position:
        """Return the position of the next event, which is written as `event` at unix time `now`."""
        number = self.number + 1
        text = f"{self.checksum}\n{number}\n{float(now)!r}\n{event}"
        return Position(number, blake2b(text.encode(errors="surrogatepass"), digest_size=SIZE).hexdigest())

    def __str__(self) -> str:
        return f"{self.number}-{self.checksum}" + (f"-{self.identity}" if self.identity else "")

    @staticmethod
    def read(text: str | None) -> Position | None:
        """Parse a position from its `str`; None for anything else."""
        found = _SHOWN.fullmatch(text or "")
        return Position(int(found[1]), found[2], found[3] or "") if found is not None else None


class Chain:
    """The checksums of a job's events, from the first one on. One thread reads it while another one adds to it."""

    def __init__(self) -> None:
        self._checksums = bytearray()
        self._bare = 0  # the last event that was written without a checksum
        self.last = Position()  # set as a whole when it is among the checksums: another thread reports it

    def add(self, position: Position, *, bare: bool = False) -> None:
        """Add the next event. `bare`: it was written without a checksum; this covers all events before it that were not added."""
        missing = position.number - 1 - len(self._checksums) // SIZE
        if missing > 0:
            self._checksums += bytes(missing * SIZE)
            self._bare = position.number - 1
        self._checksums += bytes.fromhex(position.checksum)
        if bare:
            self._bare = position.number
        self.last = position

    def has(self, position: Position) -> bool:
        """Return whether this event is part of the chain."""
        end = position.number * SIZE
        if position.number <= self._bare:
            return True
        return end <= len(self._checksums) and self._checksums[end - SIZE : end].hex() == position.checksum


def checksum_of(*columns: object) -> str:
    """Return the checksum of a row that is not part of a chain."""
    return blake2b(json.dumps(columns, default=repr).encode(), digest_size=SIZE).hexdigest()

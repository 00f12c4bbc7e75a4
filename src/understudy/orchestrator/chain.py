"""The checksums of a job's events in the journal: each covers its event and the checksum before it, so they are a chain.

What it finds, and when:

- A row that was changed, lost or exchanged in the middle: while the journal is read, because the chain does not fit any more.
- Rows that are missing at the end, or a restored older copy: the chain of what is left is whole. So the orchestrator reports to the nodes'
  agents how far the journal is (`Journalled`), and an agent shows the highest such `Position` whenever it connects, also to the next
  orchestrator. A journal that does not have this event with this checksum is not the one that the agent's workers depend on: its job is put
  aside, before the agent has joined and anything is decided about its workers.

A position also has the identity of its job, which is made where the job begins and is part of its first row. An agent that shows another
one belongs to an earlier job with the same address and secret, whose command was not ended on that node. It is refused, alone, and may
try again: nothing is decided about its workers, and nothing about this job. Where an earlier version has begun the job, or is the agent,
there is no identity, and the chain alone is compared.

Why a position is the number and checksum of an event, and not a generation: whatever is missing is found, also what a person has asked for
and no agent repeats; and a journal that has gone on from an older copy may have the number again, but never the checksum.

Why there are no false alarms: a position is reported when its event is written, never before, and in the order of the events. An
orchestrator that is killed anywhere leaves a journal that has all that it reported; one that takes over has read all of it (`database.py`,
`quorum`). A decision that is sent although the journal cannot be written (`WRITING` in `service.py`) is reported when it is written, so an
orchestrator that is killed until then is followed by one that knows as much as the agents do.

Why none is missed: a decision about who holds a rank is sent after the position of its event, on the same connection. An agent that has
carried it out knows the position.

Limits: it protects from accidents, not from somebody who computes checksums. Events that were written shortly before the host of the
orchestrator lost its power may not have reached the disk (SQLite's `synchronous=NORMAL`); where agents know of them, that is found as well.
Events of an earlier version have no checksum; the first one after them covers them, and their positions are compared by number.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import NamedTuple

SIZE = 8  # bytes: one accident in 10 ** 19 stays unseen
_SHOWN = re.compile(r"(\d{1,15})-([0-9a-f]{16})(?:-([0-9a-f]{16}))?", re.ASCII)


class Position(NamedTuple):
    """The `number` of an event of a job, from 1, and its `checksum` in hexadecimal; or the beginning. Between orchestrators and agents it
    also has the job's `identity` (`settings.py`).
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
        """Return the position that `str` has made; None for anything else."""
        found = _SHOWN.fullmatch(text or "")
        return Position(int(found[1]), found[2], found[3] or "") if found is not None else None


class Chain:
    """The checksums of a job's events, from the first one on. Read by one thread while another one adds to it."""

    def __init__(self) -> None:
        self._checksums = bytearray()
        self._bare = 0  # the last event that was written without a checksum
        self.last = Position()  # set when it is among the checksums, as a whole: another thread reports it

    def add(self, position: Position, *, bare: bool = False) -> None:
        """Add the next event. `bare`: it was written without a checksum, as those count that were not added before it."""
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
    """Return the checksum of a row that is no part of a chain."""
    return blake2b(json.dumps(columns, default=repr).encode(), digest_size=SIZE).hexdigest()

"""What is asked of one of several orchestrators of a job, of which one leads: of a member of a quorum, or of one that holds a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Candidate(Protocol):
    elected: asyncio.Future[int]  # the term, when this one leads and has all that was ever committed
    deposed: Callable[[str], None]  # called when it led and does not any more

    async def run(self) -> None:
        """Until cancelled."""
        ...

    def guard(self) -> None:
        """Returns only while this one leads, and no other can."""
        ...

    async def watch(self) -> None:
        """Looks after the lead also while nothing is decided, until cancelled."""
        ...

    def propose(self, text: str) -> None: ...

    def mark(self, reached: Callable[[], None]) -> None:
        """Calls `reached` when all that was proposed until now is kept for whoever leads next."""
        ...

    def silent_since(self, number: int, seconds: float) -> float | None:
        """The unix time at which this one was last heard, if that is longer ago than `seconds`; None also if there is no such one."""
        ...

    def known_by_all(self, since: float) -> bool:
        """Whether everybody who has to hear something has, since then (CLOCK_MONOTONIC)."""
        ...

    def leading(self) -> str:
        """The URL of the one that leads, if that is another one and known; else ""."""
        ...

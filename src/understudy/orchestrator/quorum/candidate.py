"""The interface of one of several orchestrators of a job, one of which leads: a member of a quorum, or the holder of a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Candidate(Protocol):
    elected: asyncio.Future[int]  # the term, when this one leads and has everything that was ever committed
    deposed: Callable[[str], None]  # called when it led and no longer does

    async def run(self) -> None:
        """Run until cancelled."""
        ...

    def guard(self) -> None:
        """Return only while this one leads, and no other can."""
        ...

    async def watch(self) -> None:
        """Check the leadership even while nothing is decided, until cancelled."""
        ...

    def propose(self, text: str) -> None: ...

    def mark(self, reached: Callable[[], None]) -> None:
        """Call `reached` when everything that was proposed so far is kept for the next leader."""
        ...

    def silent_since(self, number: int, seconds: float) -> float | None:
        """Return the unix time of the last message of this orchestrator if it is more than `seconds` ago; None also if it does
        not exist.
        """
        ...

    def known_by_all(self, since: float) -> bool:
        """Return whether everyone that needs the latest entries has acknowledged them since then (CLOCK_MONOTONIC)."""
        ...

    def leading(self) -> str:
        """The URL of the leader, if that is another one and known; else ""."""
        ...

"""The events of a job by their numbers: past ones from the journal, new ones as they are written there, without gaps or repeats.

A reader gets an event when the journal has it, not before: only then does its number stay, also if this orchestrator is killed or
another one takes over. What comes late to the journal (a full disk) comes late here.

While a job is followed its latest events are kept in memory, a limited number of them. A reader who has had all before the oldest of
these is served from there, everybody else from the journal, block by block, in threads of our own. So nothing is kept for a
reader, however slow, but one block. No event falls between the two: a job's events are kept from the moment at which a reader
has come, and that reader looks into the journal after it. An event was either written before that look, and is seen by it, or it is
written later and kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from understudy.orchestrator import database
from understudy.orchestrator.journal import Journal, Numbered

KEPT = 1000  # events of a job that is followed
KEPT_SIZE = 1 << 22  # characters of JSON of these
BLOCK = 100  # events that are read at once
BLOCK_SIZE = 1 << 20  # characters of JSON after which a block ends
KEEP_ALIVE = 15.0  # seconds after which a follower hears that nothing has happened
AGAIN = 1.0  # seconds between two attempts to read a journal that cannot be read
SETTLE = 5.0  # seconds for the journal to get a job's last events


class History:
    """Of all jobs in one journal. Belongs to the event loop in which it is made."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._tails: dict[str, _Tail] = {}  # of the jobs that are followed
        self._loop = asyncio.get_running_loop()
        # Not asyncio's own threads: the lease is renewed there, and must not wait for a slow reader's query.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="history")
        self._engine: sa.Engine | None = None
        journal.listener = self._written

    async def past(self, job: str, after: int) -> list[Numbered]:
        """The next ones after number `after`, from the journal; empty if there are none. Raises `sqlalchemy.exc.SQLAlchemyError`."""
        if self._engine is None:
            place = self._journal.place
            self._engine = database.engine(place.resolve() if isinstance(place, Path) else place, readonly=True)
        return await self._loop.run_in_executor(self._threads, _read, self._engine, job, after)

    async def read(self, job: str, after: int) -> AsyncGenerator[list[Numbered], None]:
        """All that the journal has after number `after`, in blocks. Raises `sqlalchemy.exc.SQLAlchemyError`."""
        while block := await self.past(job, after):
            yield block
            after = block[-1].number

    async def follow(self, job: str, after: int, over: asyncio.Future[Any]) -> AsyncGenerator[list[Numbered], None]:
        """The same, and then new ones as they come, until `over` is done. An empty block means that there is nothing new."""
        tail = self._tails.setdefault(job, _Tail())
        tail.readers += 1
        looked = False  # whether the journal had no more since the tail was there
        try:
            while True:
                last, grown = over.done(), tail.grown
                if last and not await self.settled():
                    yield []
                    continue
                try:
                    while True:
                        block = tail.after(after)
                        if block is None:
                            block = [] if looked and not tail.events else await self.past(job, after)
                            looked = looked or not block
                        if not block:
                            break
                        yield block
                        after = block[-1].number
                except sa.exc.SQLAlchemyError:
                    yield []
                    await asyncio.sleep(AGAIN)
                    continue
                if last:
                    return
                if not await _either(grown, over):
                    yield []
        finally:
            tail.readers -= 1
            if not tail.readers:
                del self._tails[job]

    async def settled(self) -> bool:
        """When the journal has what it was given until now. False: that takes too long."""
        settled = asyncio.Event()
        self._journal.mark(lambda: self._call(settled.set))
        with suppress(TimeoutError):
            await asyncio.wait_for(settled.wait(), SETTLE)
        return settled.is_set()

    def _written(self, events: list[Numbered]) -> None:
        """In the journal's thread. Whether a job is followed is looked at in the loop: here it would leave gaps in what is kept."""
        self._call(self._keep, events)

    def _keep(self, events: list[Numbered]) -> None:
        for event in events:
            if event.job in self._tails:
                self._tails[event.job].add(event)

    def _call(self, what: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended before the journal
            self._loop.call_soon_threadsafe(what, *arguments)


class _Tail:
    """The latest events of a job that is followed; their numbers have no gaps."""

    def __init__(self) -> None:
        self.events: deque[Numbered] = deque()
        self.grown = asyncio.Event()
        self.readers = 0
        self._size = 0

    def add(self, event: Numbered) -> None:
        self.events.append(event)
        self._size += len(event.event)
        while len(self.events) > KEPT or (self._size > KEPT_SIZE and len(self.events) > 1):
            self._size -= len(self.events.popleft().event)
        self.grown.set()
        self.grown = asyncio.Event()

    def after(self, number: int) -> list[Numbered] | None:
        """The next ones after `number`; None if they are not all here."""
        if not self.events or self.events[0].number > number + 1:
            return None
        first = number + 1 - self.events[0].number
        return list(islice(self.events, first, first + BLOCK))


def _read(engine: sa.Engine, job: str, after: int) -> list[Numbered]:
    events = database.events.c
    chosen = sa.select(events.job, events.number, events.now, events.event).where(events.job == job, events.number > after)
    found, size = [], 0
    with engine.connect() as connection:
        for row in connection.execution_options(yield_per=10).execute(chosen.order_by(events.number).limit(BLOCK)):
            found.append(Numbered(*row))
            size += len(row.event)
            if size > BLOCK_SIZE:
                break
    return found


async def _either(grown: asyncio.Event, over: asyncio.Future[Any]) -> bool:
    """Whether one of the two happens before it is time for a sign of life."""
    growing = asyncio.ensure_future(grown.wait())
    try:
        done, _ = await asyncio.wait({growing, over}, timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
    finally:
        growing.cancel()
    return bool(done)

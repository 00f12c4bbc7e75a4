"""Return the numbered events of a job: past ones from the journal, new ones when they are written, without gaps or repeats.

A reader gets an event when it is in the journal, not before. Only then is its number final, even if this orchestrator is killed or another
one takes over. If an event is late in the journal (a full disk), it is late here.

While a job is followed, a limited number of its latest events are kept in memory. A reader that already has everything before the oldest of
them is served from memory; all others from the journal, block by block, in dedicated threads. So at most one block is kept for each reader,
however slow. No event is missed between the two: a job's events are kept from the moment at which a reader arrives, and that reader reads
the journal after it. An event is either written before that read, which returns it, or it is written later and kept.
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
KEEP_ALIVE = 15.0  # seconds without a new event after which a follower gets a sign of life
AGAIN = 1.0  # seconds between two attempts to read a journal that cannot be read
SETTLE = 5.0  # seconds for the journal to get a job's last events


class History:
    """The events of all jobs in one journal. Belongs to the event loop in which it is made."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._tails: dict[str, _Tail] = {}  # of the jobs that are followed
        self._loop = asyncio.get_running_loop()
        # Not asyncio's default threads: the lease is renewed there, and must not wait for a slow reader's query.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="history")
        self._engine: sa.Engine | None = None
        journal.listener = self._written

    async def past(self, job: str, after: int) -> list[Numbered]:
        """Return the next events after number `after`, from the journal; empty if there are none. Raises
        `sqlalchemy.exc.SQLAlchemyError`.
        """
        if self._engine is None:
            place = self._journal.place
            self._engine = database.engine(place.resolve() if isinstance(place, Path) else place, readonly=True)
        return await self._loop.run_in_executor(self._threads, _read, self._engine, job, after)

    async def read(self, job: str, after: int) -> AsyncGenerator[list[Numbered], None]:
        """Yield all events in the journal after number `after`, in blocks. Raises `sqlalchemy.exc.SQLAlchemyError`."""
        while block := await self.past(job, after):
            yield block
            after = block[-1].number

    async def follow(self, job: str, after: int, over: asyncio.Future[Any]) -> AsyncGenerator[list[Numbered], None]:
        """Yield the same, and then new events, until `over` is done. An empty block means that there is nothing new."""
        tail = self._tails.setdefault(job, _Tail())
        tail.readers += 1
        looked = False  # whether the journal had no more events since the tail exists
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
        """Wait until the journal has everything that it was given. Return False if that takes too long."""
        settled = asyncio.Event()
        self._journal.mark(lambda: self._call(settled.set))
        with suppress(TimeoutError):
            await asyncio.wait_for(settled.wait(), SETTLE)
        return settled.is_set()

    def _written(self, events: list[Numbered]) -> None:
        """Take events from the journal's thread. The loop checks whether a job is followed: a check here would leave gaps in the tail."""
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
        """Return the next events after `number`; None if they are not all here."""
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
    """Return whether one of the two happens before the next sign of life is due."""
    growing = asyncio.ensure_future(grown.wait())
    try:
        done, _ = await asyncio.wait({growing, over}, timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
    finally:
        growing.cancel()
    return bool(done)

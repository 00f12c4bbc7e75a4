"""The journal: every event of every job with its time, in the order in which the job's machine handled it. Replaying it gives the state.

By default it is an SQLite file in write-ahead mode, so that `understudy status` and `report` can read it while it is written; a service may
use PostgreSQL (`database.py`). Only decisions (`dispatch.py`) wait for the write: they are sent when their event is written, however long
that takes (`decisions.py`). All other commands are sent first, and a thread writes the events immediately after, many
in one transaction if they arrive fast. If an orchestrator is killed before it has written them, this is repaired: agents repeat what they
know, an abort that is announced again is answered again, and a worker with a rank that the journal does not know is ended. `tests/model`
explores all orders of that.

A full or missing disk must not stop training: on a full one decisions are written into a reserve (`room.py`), and progress is not written.
When that is used up, or the disk is gone, this is reported, the events wait in memory, and the writer tries again, after `AGAIN` seconds at
first and later after up to `AGAIN_AT_MOST`, until it succeeds. Any other error of a write is treated alike. In the meantime
`Journal.trouble` has the reason, `/v1/health` shows it, and it is reported again every `REPORTED_AGAIN` seconds.

Everything that is written can be read: messages have the same bounds (`common/bounds.py`) on arrival and when they are read. If a row
cannot be read nevertheless, or is not the one that was written (`chain.py`), its job is put aside with the reason, and all others go on.

A journal of an older version is migrated before the first write (`migrations.py` also describes how its JSON stays readable), and can be
read as it is. One of a newer version is rejected.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from understudy.common.backoff import Backoff
from understudy.common.bounds import known_pid
from understudy.common.page_view import PageView
from understudy.core.events import Event
from understudy.core.machine import Machine
from understudy.links.messages import encode
from understudy.messages import orchestrators
from understudy.orchestrator import database, migrations, rows
from understudy.orchestrator.chain import Chain, Position, checksum_of
from understudy.orchestrator.room import MIB, Room
from understudy.orchestrator.rows import Recorded
from understudy.orchestrator.settings import Settings

AGAIN, AGAIN_AT_MOST = 0.25, 5.0  # seconds between two attempts to write: at first, and in the end
REPORTED_AGAIN = 60.0
_PASSING = frozenset(  # what may be temporary: no space, no permission, a lock of another process
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
        *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT),
    }
)


@dataclass(frozen=True)
class Numbered:
    """An event of the journal: `number` counts from 1 within the job, `now` is unix time, `event` is JSON.

    `checksum`: as in `chain.py`; "" where it is not needed.
    """

    job: str
    number: int
    now: float
    event: str
    checksum: str = ""

    def shown(self) -> dict[str, Any]:
        """Return the event for users: `number`, `time` (unix, seconds), `type`, and the fields of this type, none of which has one of these
        names.
        """
        fields: dict[str, Any] = json.loads(self.event)
        if "pid" in fields:  # an earlier version may have written 0
            fields["pid"] = known_pid(fields["pid"])
        return {"number": self.number, "time": self.now, **fields}


@dataclass(frozen=True)
class _Begun:
    settings: Settings
    request: str


@dataclass(frozen=True)
class _Mark:
    reached: Callable[[], None]


_Entry = _Begun | tuple[float, Event, str] | Mapping[str, PageView] | _Mark


class Unreadable(ValueError):
    """A job's part of the journal cannot be read. The text names the place and the reason."""


class Damaged(ValueError):
    """The journal's file is no database, or is damaged. The text has the remedy."""


class Journal:
    """The writer of all jobs' events.

    `start` it, write from the service's thread through the result of `begin`, `close` it. `tell` is called from the writer's thread: when
    it cannot write, repeatedly, when it can again, and when an older journal was migrated.
    """

    def __init__(
        self, place: Path | str, tell: Callable[[str], None], fence: int | None = None, deposed: Callable[[], None] = lambda: None
    ) -> None:
        """Create the writer.

        With a `fence` of a lease, nothing is written once another orchestrator has taken the lease; `deposed` is called then, from the
        writer's thread.
        """
        self.place = place
        self.listener: Callable[[list[Numbered]], None] = lambda events: None  # called from the writer's thread with written events
        self._tell = tell
        self._fence = fence
        self._deposed = deposed
        self.trouble = ""  # why nothing can be written at present
        self._refuses = ""  # the same, while there is space
        self._reported_at = 0.0
        self._room = Room(place, tell)
        self._entries: queue.SimpleQueue[tuple[str, _Entry] | None] = queue.SimpleQueue()
        self._batch = _Batch()  # rows that the thread has taken and not written yet
        self._chains: dict[str, Chain] = {}  # of the jobs that were begun here, as far as written
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, settings: Settings, request: str = "", chain: Chain | None = None) -> JobJournal:
        """Return the journal of a new job, or of a known one: then its record stays, with its `chain`."""
        job = settings.spec.job
        made = self._chains[job] = chain if chain is not None else Chain()
        self._entries.put((job, _Begun(settings, request)))
        return JobJournal(lambda entry: self._entries.put((job, entry)), made, self.obstacle, settings.identity)

    def obstacle(self) -> str:
        """Return why pending entries are not written yet, and the remedy."""
        return self._refuses or orchestrators.JOURNAL_SILENT(journal=database.shown(self.place))

    def waiting(self) -> int:
        """Return the number of pending entries: many, or for a long time, mean that the disk or the database rejects writes."""
        return self._entries.qsize() + self._batch.size

    def mark(self, reached: Callable[[], None]) -> None:
        """Call `reached`, from the writer's thread, when everything that was given so far is written."""
        self._entries.put(("", _Mark(reached)))

    def close(self, timeout: float = 5.0) -> None:
        """Write the rest, for at most `timeout` seconds."""
        self._entries.put(None)
        self._thread.join(timeout)

    def _write_all(self) -> None:
        engine = database.engine(self.place)
        last: dict[str, Position] = {}  # each job's last event, as far as known
        sure = False  # whether the tables are of this version, and failed writes have left nothing
        backoff, again = Backoff(AGAIN, AGAIN_AT_MOST), AGAIN
        open_ = True
        while open_:
            open_ = self._take(again if self.trouble else None)
            try:
                if self._batch.shows() and not self._room.enough():
                    self._batch.forget_pages()
                if sure and self._batch.only_marks():
                    self._batch.reach()
                    continue
                with engine.begin() as connection:
                    older = None if sure else database.prepare(connection)
                    if self._fence is not None:
                        database.check(connection, self._fence)
                    written = self._batch.write(connection, last, sure)
                self._batch.forget_written()  # first: an error after this must not write it again
                unsure, sure = not sure, True
                for event in written:
                    position = last[event.job] = Position(event.number, event.checksum)
                    if (chain := self._chains.get(event.job)) is not None:
                        chain.add(position)
                self.listener(written)
                self._batch.reach()
                self._room.reserve(again=unsure)
            except database.Deposed:
                self._deposed()
                break
            except Exception as error:  # any error: a writer that ends without a message would be worse than one that cannot write
                if not self.trouble:
                    backoff.reset()
                again = backoff.delay()
                sure = False
                self._failed(error)
                continue
            if self.trouble:
                self.trouble = self._refuses = ""
                self._tell(orchestrators.JOURNAL_WRITTEN_AGAIN(path=database.shown(self.place)))
            if older is not None:
                self._tell(migrations.notice(database.shown(self.place), older))
        engine.dispose()

    def _take(self, limit: float | None) -> bool:
        """Move pending entries into the batch, waiting for at most `limit` seconds. Return False if nothing more will come."""
        open_ = True
        entries: list[tuple[str, _Entry] | None] = []
        with contextlib.suppress(queue.Empty):
            entries.append(self._entries.get(timeout=limit))
            while not self._entries.empty():
                entries.append(self._entries.get())
        for entry in entries:
            if entry is None:
                open_ = False
            else:
                self._batch.add(*entry)
        return open_

    def _failed(self, error: Exception) -> None:
        known = isinstance(error, sa.exc.SQLAlchemyError | sqlite3.Error | OSError | migrations.NewerJournal)
        why = str(error) if known else orchestrators.JOURNAL_BUG(error=f"{type(error).__name__}: {error}")
        now = time.monotonic()
        if not self.trouble or now - self._reported_at > REPORTED_AGAIN:
            self._reported_at = now
            self._tell(orchestrators.JOURNAL_UNWRITTEN(path=database.shown(self.place), reason=why))
        self.trouble = orchestrators.JOURNAL_TROUBLE(reason=why)
        short, free = str(getattr(error, "orig", None) or error), (self._room.free() or 0) / MIB
        if isinstance(self.place, Path):
            self._refuses = orchestrators.DISK_REFUSES(path=self.place, reason=short, free=free)


class JobJournal:
    """The journal of one job."""

    strict = False  # whether the job's end waits for the journal, too, as decisions do

    def __init__(self, put: Callable[[_Entry], None], chain: Chain, obstacle: Callable[[], str] = str, identity: str = "") -> None:
        self._put = put
        self.identity = identity  # as in `Settings`
        self.chain = chain  # of the written entries
        self.obstacle = obstacle  # returns why pending entries are not written yet, and the remedy

    def mark(self, reached: Callable[[], None]) -> None:
        """Call `reached`, as in `Journal.mark`."""
        self._put(_Mark(reached))

    def append(self, now: float, event: Event, encoded: str = "") -> None:
        """Append an event. `encoded`: its JSON, if it exists already."""
        self._put((now, event, encoded))

    def progress(self, pages: Mapping[str, PageView]) -> None:
        """Record the workers' positions, for readers after the job's end, not for replaying. Each replaces the last."""
        self._put(dict(pages))


class _Batch:
    """Rows that wait to be written."""

    def __init__(self) -> None:
        self.size = 0
        self._begun: dict[str, dict[str, object]] = {}
        self._events: dict[str, list[tuple[float, str]]] = {}  # by job
        self._pages: dict[tuple[str, str], PageView] = {}
        self._marks: list[_Mark] = []

    def add(self, job: str, entry: _Entry) -> None:
        self.size += 1
        if isinstance(entry, _Begun):
            row = {"job": job, "settings": entry.settings.to_json(), "request": entry.request}
            self._begun.setdefault(job, {**row, "checksum": checksum_of(*row.values())})
        elif isinstance(entry, _Mark):
            self._marks.append(entry)
        elif isinstance(entry, tuple):
            now, event, encoded = entry
            self._events.setdefault(job, []).append((now, encoded or encode(event)))
        else:
            self._pages |= {(job, worker): page for worker, page in entry.items()}

    def only_marks(self) -> bool:
        return not (self._begun or self._events or self._pages)

    def shows(self) -> bool:
        """Return whether the batch has progress."""
        return bool(self._pages)

    def forget_pages(self) -> None:
        self._pages.clear()

    def forget_written(self) -> None:
        """Drop all rows, which are written, and keep the marks."""
        self._begun, self._events, self._pages = {}, {}, {}

    def reach(self) -> None:
        """Call the marks: the whole batch is written."""
        while self._marks:
            self._marks.pop(0).reached()
        self.size = 0

    def write(self, connection: sa.Connection, last: dict[str, Position], sure: bool) -> list[Numbered]:
        """Write the events, and return them with their numbers and checksums.

        `last` gets the positions that are read here. Unless `sure`, a commit that has failed may have succeeded nevertheless (the
        connection broke before the answer): existing rows are not written again.
        """
        for job, row in self._begun.items():
            if connection.execute(sa.select(database.jobs.c.job).where(database.jobs.c.job == job)).first() is None:
                connection.execute(sa.insert(database.jobs), row)
        numbered, new = [], []
        for job, events in self._events.items():
            there = last[job] if sure and job in last else rows.last(connection, job)
            position = last.setdefault(job, there)
            for now, text in events:
                position = position.after(now, text)
                numbered.append(Numbered(job, position.number, now, text, position.checksum))
                if position.number > there.number:
                    new.append(vars(numbered[-1]))
        if new:
            connection.execute(sa.insert(database.events), new)
        if self._pages:  # each of these two statements is prepared once for all rows
            progress = database.progress
            old = sa.delete(progress).where(progress.c.job == sa.bindparam("of"), progress.c.worker == sa.bindparam("by"))
            connection.execute(old, [{"of": job, "by": worker} for job, worker in self._pages])
            pages = [{"job": job, "worker": worker, "page": json.dumps(page._asdict())} for (job, worker), page in self._pages.items()]
            connection.execute(sa.insert(progress), pages)
        return numbered


def read(place: Path | str, job: str | None = None) -> Recorded | None:
    """Return the records of `job`, or of the only one; None if there is no journal yet, or no such job in it."""
    jobs = read_all(place, job)
    return next(iter(jobs.values()), None)


def read_all(
    place: Path | str, only: str | None = None, aside: dict[str, str] | None = None, check: str = database.QUICK
) -> dict[str, Recorded]:
    """Return all jobs in the order in which they were begun, or `only` one.

    Those that cannot be read go into `aside`, with the reason. Raises `migrations.NewerJournal`, `Damaged`, and `Unreadable` without an
    `aside`. `check`: as in `database.reading`.
    """
    with _undamaged(place), database.reading(place, check) as connection:
        if connection is None:
            return {}
        jobs: dict[str, Recorded] = {}
        for begin in rows.begins(connection):
            if only not in (None, begin.job):
                continue
            try:
                jobs[begin.job] = rows.recorded(connection, begin)
            except ValueError as error:
                why = orchestrators.JOB_UNREADABLE(path=database.shown(place), job=begin.name, reason=str(error))
                if aside is None:
                    raise Unreadable(why) from error
                aside[begin.name] = why
        return jobs


@contextlib.contextmanager
def _undamaged(place: Path | str) -> Iterator[None]:
    """Raise `Damaged` for a damaged file. Temporary errors (`OperationalError`: no space, locked) pass through."""
    try:
        yield
    except (sqlite3.DatabaseError, sa.exc.DatabaseError) as error:
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
        if not isinstance(place, Path) or (code is not None and code & 0xFF in _PASSING):
            raise
        raise Damaged(orchestrators.JOURNAL_DAMAGED(path=place, reason=str(getattr(error, "orig", error)))) from error


def replay(settings: Settings, events: list[tuple[float, Event]]) -> Machine:
    """Return the machine as it was after these events."""
    machine = Machine(settings.spec, settings.timeouts)
    for now, event in events:
        machine.handle(event, now)
    return machine

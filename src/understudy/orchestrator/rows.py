"""Read one job from the journal's rows, and check that they are the rows that were written (`chain.py`)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from understudy.common.bounds import plain
from understudy.common.page_view import Activity, PageView
from understudy.core.events import Event
from understudy.links.messages import BadMessage, decode_trusted
from understudy.messages import orchestrators
from understudy.orchestrator import database
from understudy.orchestrator.chain import Chain, Position, checksum_of
from understudy.orchestrator.settings import Settings


@dataclass(frozen=True)
class Recorded:
    """The recorded data of a job: its events with their times, and the last known pages of its workers."""

    settings: Settings
    request: str
    events: list[tuple[float, Event]]
    pages: dict[str, PageView]
    chain: Chain = field(default_factory=Chain, compare=False)


@dataclass(frozen=True)
class Begin:
    """The row with which a job begins. `there`: false if it is missing, and only events of the job exist."""

    job: str
    settings: str = ""
    request: str = ""
    checksum: str = ""
    there: bool = True

    @property
    def name(self) -> str:
        """The job's name in a printable form: the row may be damaged."""
        return plain(str(self.job))


def begins(connection: sa.Connection) -> list[Begin]:
    """Read the rows with which jobs begin, in order; then those that are missing."""
    columns = database.jobs.c
    chosen = sa.select(columns.job, columns.settings, columns.request, columns.checksum).order_by(columns.number)
    found = [Begin(*row) for row in connection.execute(chosen)]
    begun = {row.job for row in found}
    others = connection.execute(sa.select(database.events.c.job).distinct()).scalars()
    return found + [Begin(job, there=False) for job in others if job not in begun]


def recorded(connection: sa.Connection, begin: Begin) -> Recorded:
    """Read everything about a job. Raises `ValueError` that names the row."""
    if not begin.there or begin.checksum not in ("", checksum_of(begin.job, begin.settings, begin.request)):
        raise ValueError(orchestrators.JOB_ROW_DAMAGED())
    events, chain = _events_of(connection, begin.job)
    return Recorded(Settings.from_json(begin.settings), begin.request, events, _pages_of(connection, begin.job), chain)


def last(connection: sa.Connection, job: str) -> Position:
    """Return the position of a job's last event."""
    columns = database.events.c
    rows = sa.select(columns.number, columns.checksum).where(columns.job == job)
    row = connection.execute(rows.order_by(columns.number.desc()).limit(1)).first()
    if row is None:
        return Position()
    return Position(row.number, row.checksum) if row.checksum else _computed(connection, job)


def _computed(connection: sa.Connection, job: str) -> Position:
    """Compute the position for a job that an earlier version has written, once."""
    position = Position()
    for now, text, *_ in _rows(connection, job):
        position = position.after(now, text)
    return position


def _rows(connection: sa.Connection, job: str) -> Sequence[Any]:
    columns = database.events.c
    rows = sa.select(columns.now, columns.event, columns.number, columns.checksum).where(columns.job == job)
    return connection.execute(rows.order_by(columns.number)).all()


def _events_of(connection: sa.Connection, job: str) -> tuple[list[tuple[float, Event]], Chain]:
    """Read the events of a job. Raises `ValueError` that names the event."""
    events, chain, position = [], Chain(), Position()
    for expected, (now, text, number, checksum) in enumerate(_rows(connection, job), 1):
        if number != expected:
            raise ValueError(orchestrators.EVENTS_MISSING(number=expected))
        position = position.after(now, text) if isinstance(text, str) and isinstance(now, float) else Position()
        if position.number != number or checksum not in ("", position.checksum):
            raise ValueError(orchestrators.EVENT_DAMAGED(number=number))
        chain.add(position, bare=not checksum)
        try:
            event, _ = decode_trusted(text)
        except BadMessage as error:
            raise ValueError(orchestrators.EVENT_UNREADABLE(number=number, reason=str(error))) from error
        if isinstance(event, Event):
            events.append((now, event))
    return events, chain


def _pages_of(connection: sa.Connection, job: str) -> dict[str, PageView]:
    """Read the pages of a job. Unreadable ones are left out: they are only shown, and workers will send more."""
    rows = connection.execute(sa.select(database.progress.c.worker, database.progress.c.page).where(database.progress.c.job == job)).all()
    pages = {}
    for worker, text in rows:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            pages[worker] = page(text)
    return pages


def page(text: str) -> PageView:
    """Decode a page of the journal."""
    found = json.loads(text)
    known = {name: found[name] for name in PageView._fields if name in found}
    return PageView(**{**known, "activity": Activity(known["activity"])})

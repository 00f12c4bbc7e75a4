"""Migrate the journal's tables of an earlier version to this one.

`STEPS[n - 1]` leads from version n to n + 1. An orchestrator that opens an older journal for writing runs the missing steps and writes the
new version in one transaction (`database.prepare`), so a process that is killed during it leaves the old version intact. A reader changes
nothing, and runs the steps on a copy in memory (`database.reading`).

A step never changes after its release: it knows the tables of that time, in SQL for both SQLite and PostgreSQL, and nothing of today's
`database.metadata`. A test compares the tables that the steps lead to with newly created ones.

Events, settings and pages are JSON in these tables, as the dataclasses of `core` define them, and the same rule keeps them readable: a new
field has a default that means what was true before; a removed field is ignored; an event or a field with a new name gets a step that
rewrites it (`update events set event = ... where event like '{"type":"OldName",%'`). Nothing is skipped silently: a job with an unknown
event cannot be read, and a service puts it aside.

A step that rewrites events sets the checksums of all events to '': the checksum of the next event covers them again (`chain.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import sqlalchemy as sa

from understudy.messages import orchestrators


def numbered_events(connection: sa.Connection) -> None:
    """1 -> 2: number events within their job, from 1 and without gaps, so that a reader can name the last event that it has."""
    for statement in (
        "alter table events add column number integer default 0 not null",
        "update events set number = counted.number from "
        "(select seq, row_number() over (partition by job order by seq) as number from events) as counted where counted.seq = events.seq",
        "create unique index ix_events_job_number on events (job, number)",
        "drop index ix_events_job",  # the new one replaces it
    ):
        connection.execute(sa.text(statement))


def lost_nodes_together(connection: sa.Connection) -> None:
    """2 -> 3: one event reports all nodes that are lost together. Events for single nodes become events with one node."""
    old = '{"type":"NodeLost",'
    connection.execute(
        sa.text("update events set event = :new || substr(event, :rest) || ']}' where substr(event, 1, :length) = :old"),
        {"new": '{"type":"NodesLost","nodes":[{', "rest": len(old) + 1, "length": len(old), "old": old},
    )


def checksums(connection: sa.Connection) -> None:
    """3 -> 4: add checksums to rows; existing rows get an empty one."""
    for table in ("jobs", "events"):
        connection.execute(sa.text(f"alter table {table} add column checksum text default '' not null"))


STEPS: tuple[Callable[[sa.Connection], None], ...] = (numbered_events, lost_nodes_together, checksums)
VERSION = 1 + len(STEPS)  # of the tables that this Understudy writes


class NewerJournal(ValueError):
    """The journal was written by a newer Understudy."""

    def __init__(self, found: int) -> None:
        super().__init__(orchestrators.JOURNAL_NEWER(found=found, known=VERSION))


def version_of(connection: sa.Connection) -> int | None:
    """Return the version of the tables; None if there are none yet, or if a process of version 1 was killed while it made them.

    Raises `NewerJournal`, and `sqlite3.DatabaseError` if only the version is missing.
    """
    there = sa.inspect(connection).get_table_names()
    found: int | None = connection.execute(sa.text("select version from version")).scalar() if "version" in there else None
    if found is None and connection.dialect.name == "sqlite":  # otherwise `prepare` would drop the existing tables
        for table in {"jobs", "events"} & set(there):
            if connection.execute(sa.text(f"select 1 from {table} limit 1")).first() is not None:
                raise sqlite3.DatabaseError(orchestrators.VERSION_MISSING())
    if found is not None and found > VERSION:
        raise NewerJournal(found)
    return found


def migrate(connection: sa.Connection, found: int) -> None:
    """Migrate from version `found` to this one, in the caller's transaction."""
    for step in STEPS[max(0, found - 1) :]:
        step(connection)
    connection.execute(sa.text("update version set version = :version"), {"version": VERSION})


def notice(place: str, found: int) -> str:
    """Return the message about the migrated journal at `place`, which was of version `found`."""
    return orchestrators.JOURNAL_UPGRADED(path=place, found=found, known=VERSION)

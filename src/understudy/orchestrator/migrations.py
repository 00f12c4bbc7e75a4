"""How the journal's tables of an earlier version become those of this one.

`STEPS[n - 1]` leads from version n to n + 1. An orchestrator that opens an older journal for writing runs the steps that are missing
and writes the new version in one transaction (`database.prepare`), so whoever is killed in between leaves the old version whole.
Whoever only reads changes nothing, and runs the steps on a copy in memory (`database.reading`).

A step is finished once it was released: it knows the tables as they were then, in SQL that SQLite and PostgreSQL both understand,
and nothing of today's `database.metadata`. A test compares the tables that the steps lead to with those that are made anew.

Events, settings and pages are JSON in these tables, as the dataclasses of `core` have them, and the same rule keeps them readable:
a new field has a default that means what was true before; a field that is gone is not looked at; an event or a field that gets another
name gets a step that rewrites it (`update events set event = ... where event like '{"type":"OldName",%'`). Nothing is
skipped in silence: a job with an event whose name is not known cannot be read, and a service puts it aside.

A step that rewrites events sets the checksums of all events to '': they are covered again by that of the next event (`chain.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import sqlalchemy as sa

from understudy.messages import orchestrators


def numbered_events(connection: sa.Connection) -> None:
    """1 -> 2: events are numbered within their job, from 1 and without gaps, so that a reader can name the last one that it has had."""
    for statement in (
        "alter table events add column number integer default 0 not null",
        "update events set number = counted.number from "
        "(select seq, row_number() over (partition by job order by seq) as number from events) as counted where counted.seq = events.seq",
        "create unique index ix_events_job_number on events (job, number)",
        "drop index ix_events_job",  # the new one serves for it
    ):
        connection.execute(sa.text(statement))


def lost_nodes_together(connection: sa.Connection) -> None:
    """2 -> 3: one event tells of all the nodes that are lost together. There were events for one node only, which become such for one."""
    old = '{"type":"NodeLost",'
    connection.execute(
        sa.text("update events set event = :new || substr(event, :rest) || ']}' where substr(event, 1, :length) = :old"),
        {"new": '{"type":"NodesLost","nodes":[{', "rest": len(old) + 1, "length": len(old), "old": old},
    )


def checksums(connection: sa.Connection) -> None:
    """3 -> 4: rows have checksums, those that are there an empty one."""
    for table in ("jobs", "events"):
        connection.execute(sa.text(f"alter table {table} add column checksum text default '' not null"))


STEPS: tuple[Callable[[sa.Connection], None], ...] = (numbered_events, lost_nodes_together, checksums)
VERSION = 1 + len(STEPS)  # of the tables that this Understudy writes


class NewerJournal(ValueError):
    """The journal was written by a newer Understudy."""

    def __init__(self, found: int) -> None:
        super().__init__(orchestrators.JOURNAL_NEWER(found=found, known=VERSION))


def version_of(connection: sa.Connection) -> int | None:
    """None if there are no tables yet, or if a process of version 1 was killed while it made them. Raises `NewerJournal`, and
    `sqlite3.DatabaseError` if only the version is missing.
    """
    there = sa.inspect(connection).get_table_names()
    found: int | None = connection.execute(sa.text("select version from version")).scalar() if "version" in there else None
    if found is None and connection.dialect.name == "sqlite":  # else `prepare` would drop what is there
        for table in {"jobs", "events"} & set(there):
            if connection.execute(sa.text(f"select 1 from {table} limit 1")).first() is not None:
                raise sqlite3.DatabaseError(orchestrators.VERSION_MISSING())
    if found is not None and found > VERSION:
        raise NewerJournal(found)
    return found


def migrate(connection: sa.Connection, found: int) -> None:
    """From version `found` to this one, in the caller's transaction."""
    for step in STEPS[max(0, found - 1) :]:
        step(connection)
    connection.execute(sa.text("update version set version = :version"), {"version": VERSION})


def told(place: str, found: int) -> str:
    """What to tell about the journal at `place`, which was of version `found`."""
    return orchestrators.JOURNAL_UPGRADED(path=place, found=found, known=VERSION)

"""Journals of earlier versions: brought to this one whole or not at all, read as they are, and refused if they are of a later one."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import typing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.postgres import needs_postgres, postgres
from tests.journals import HERE, SAID, as_version1, version1
from tests.message_texts import has, refused

from understudy.common.names import JOURNAL
from understudy.core import events
from understudy.links.messages import encode
from understudy.messages import orchestrators
from understudy.orchestrator import database, journal, migrations, views
from understudy.orchestrator.leadership import Leadership

STOPPED = events.StopAsked("after the upgrade", 3)
# Migrates a journal with an extra step after the real ones that reports itself and waits, in the middle of the transaction.
IN_THE_MIDDLE = """
import pathlib, signal, sys
from understudy.orchestrator import database, migrations

def wait(connection):
    print("in the middle", flush=True)
    signal.pause()

migrations.STEPS += (wait,)
place = sys.argv[1]
if place.startswith("postgresql"):
    database.Lease(place, "the one that is killed", 60.0).take()
else:
    with database.engine(pathlib.Path(place)).begin() as connection:
        database.prepare(connection)
"""


def version1_in_postgres(url: str, folder: Path) -> None:
    source = version1(folder / "version1.db")
    with database.engine(url).begin() as connection, sqlite3.connect(source) as rows:
        for statement in (HERE / "version1.postgres.sql").read_text().split(";")[:-1]:
            connection.execute(sa.text(statement))
        for table in ("jobs", "events", "progress", "version"):
            found = rows.execute(f"select * from {table}")
            columns = [column[0] for column in found.description]
            names, values = ", ".join(columns), ", ".join(f":{column}" for column in columns)
            for row in found:
                connection.execute(sa.text(f"insert into {table} ({names}) values ({values})"), dict(zip(columns, row, strict=True)))
        for table, key in (("jobs", "number"), ("events", "seq")):
            connection.execute(sa.text(f"select setval('{table}_{key}_seq', (select max({key}) from {table}))"))


def as_version1_said(place: Path | str) -> None:
    """Every job is as it was: its status, its report and the number of its events."""
    known = journal.read_all(place)
    for job, recorded in known.items():
        machine = journal.replay(recorded.settings, recorded.events)
        status = views.status(machine, recorded.pages)
        assert all(": " in what and count > 0 for what, count in status["refused"].items()), "nor were they counted"
        found = {
            "status": as_version1(status),
            "report": as_version1(views.report(machine)),
            "request": recorded.request,
            "events": len(recorded.events),
        }
        assert json.loads(json.dumps(found)) == SAID[job]
    assert list(known) == list(SAID)


def tables(place: Path | str) -> dict[str, object]:
    """Columns, keys and indexes of every table."""
    engine = database.engine(place)
    with engine.connect() as connection:
        look = sa.inspect(connection)
        found: dict[str, object] = {}
        for table in look.get_table_names():
            columns = {
                str(column["name"]): (repr(column["type"]), column["nullable"], column["default"]) for column in look.get_columns(table)
            }
            unique = [constraint["column_names"] for constraint in look.get_unique_constraints(table)]
            indexes = sorted((str(index["name"]), index["column_names"], bool(index["unique"])) for index in look.get_indexes(table))
            found[table] = (columns, look.get_pk_constraint(table)["constrained_columns"], unique, indexes)
    engine.dispose()
    return found


def numbers(place: Path | str) -> dict[str, list[int]]:
    engine = database.engine(place)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("select job, number from events order by seq")).all()
    engine.dispose()
    return {job: [row.number for row in rows if row.job == job] for job in SAID}


def version_in(place: Path | str) -> int:
    engine = database.engine(place)
    with engine.connect() as connection:
        found: int = connection.execute(sa.select(database.version.c.version)).scalar_one()
    engine.dispose()
    return found


def append(place: Path | str, fence: int | None = None) -> list[str]:
    """An orchestrator's journal goes on with one event more in `running`; its messages."""
    reported: list[str] = []
    writer = journal.Journal(place, reported.append, fence)
    writer.start()
    recorded = journal.read(place, "running")
    assert recorded is not None
    writer.begin(recorded.settings).append(1795295700.0, STOPPED)
    writer.close(60.0)
    return reported


def is_upgraded(place: Path | str, fresh: Path | str) -> None:
    assert version_in(place) == migrations.VERSION
    assert tables(place) == tables(fresh)
    for job, wanted in SAID.items():
        more = 1 if job == "running" else 0
        assert numbers(place)[job] == list(range(1, wanted["events"] + more + 1))
    recorded = journal.read(place, "running")
    assert recorded is not None and recorded.events[-1] == (1795295700.0, STOPPED)


def test_an_older_journal_is_read_as_it_is_and_upgraded_by_the_writer(tmp_path: Path) -> None:
    path = version1(tmp_path / JOURNAL)
    before = path.read_bytes()
    as_version1_said(path)
    assert path.read_bytes() == before, "reading changes nothing"
    reported = append(path)
    assert reported == [orchestrators.JOURNAL_UPGRADED(path=path, found=1, known=4)]
    fresh = tmp_path / "fresh.db"
    with database.engine(fresh).begin() as connection:
        assert database.prepare(connection) is None
    is_upgraded(path, fresh)
    assert numbers(path)["running"][-1] == SAID["running"]["events"] + 1
    assert append(path) == [], "nothing is left to upgrade"


@needs_postgres
def test_who_takes_the_lease_upgrades(tmp_path: Path) -> None:
    with postgres(tmp_path / "database") as server:
        version1_in_postgres(server.url, tmp_path)
        with database.engine(server.url).begin() as connection:
            connection.execute(sa.text("insert into lease values (1, 'of version 1', 7, 1e12)"))
        lease = database.Lease(server.url, "mine", 60.0)
        assert lease.take() is None
        assert version_in(server.url) == 1, "another one leads, and uses these tables"
        with database.engine(server.url).begin() as connection:
            connection.execute(sa.text("update lease set until = 0"))
        lines: list[str] = []
        leadership = Leadership(server.url, lines.append)
        asyncio.run(leadership.wait())
        assert leadership.fence == 8
        (line,) = lines
        assert has(line, orchestrators.JOURNAL_UPGRADED, found=1, known=4) and "a password" not in line and "a%20password" not in line
        as_version1_said(server.url)
        assert append(server.url, 8) == []
        with database.engine(server.url).connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("create database fresh"))
        fresh = server.url.replace("/postgres?", "/fresh?")
        with database.engine(fresh).begin() as connection:
            database.prepare(connection)
        is_upgraded(server.url, fresh)


def kill_in_the_middle(place: Path | str) -> None:
    process = subprocess.Popen([sys.executable, "-c", IN_THE_MIDDLE, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "in the middle\n"
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


def test_killed_in_the_middle_of_a_migration(tmp_path: Path) -> None:
    path, untouched = version1(tmp_path / JOURNAL), version1(tmp_path / "untouched.db")
    kill_in_the_middle(path)
    assert version_in(path) == 1 and tables(path) == tables(untouched)
    as_version1_said(path)
    append(path)
    assert version_in(path) == migrations.VERSION


FIRST_MOMENTS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size=1")  # pages are written before the end
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE version (version INTEGER)")
connection.executemany("INSERT INTO version VALUES (randomblob(?))", [(1000,)] * 1000)
print("in the middle", flush=True)
sys.stdin.read()
"""


def test_killed_before_the_write_ahead_log_is_there(tmp_path: Path) -> None:
    """A file whose rollback journal is still to be played back can be looked at: there is nothing in it."""
    path = tmp_path / "100%41 sure?" / JOURNAL
    path.parent.mkdir()
    process = subprocess.Popen([sys.executable, "-c", FIRST_MOMENTS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"in the middle\n"
    process.kill()
    process.communicate()
    assert path.stat().st_size > 0 and path.with_name(f"{path.name}-journal").stat().st_size > 0
    assert journal.read_all(path) == {}
    assert not path.with_name(f"{path.name}-journal").exists()


@needs_postgres
def test_killed_in_the_middle_of_a_migration_in_postgres(tmp_path: Path) -> None:
    with postgres(tmp_path / "database") as server:
        version1_in_postgres(server.url, tmp_path)
        before = tables(server.url)
        kill_in_the_middle(server.url)
        assert version_in(server.url) == 1 and tables(server.url) == before
        assert database.Lease(server.url, "the next one", 60.0).take() == 1
        assert version_in(server.url) == migrations.VERSION
        as_version1_said(server.url)


def test_version_1_killed_while_it_made_its_tables(tmp_path: Path) -> None:
    path, fresh = tmp_path / JOURNAL, tmp_path / "fresh.db"
    text = (HERE / "version1.sql").read_text()
    begin = text.index("CREATE TABLE events")
    with sqlite3.connect(path) as connection:
        connection.execute(text[begin : text.index(";", begin)])
    connection.close()
    assert journal.read_all(path) == {}
    for place in (path, fresh):
        with database.engine(place).begin() as prepared:
            assert database.prepare(prepared) is None
    assert tables(path) == tables(fresh)


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    path = version1(tmp_path / JOURNAL)
    append(path)
    recorded = journal.read(path, "running")
    assert recorded is not None
    with sqlite3.connect(path) as connection:
        connection.execute("update version set version = 99")
    before = list(connection.iterdump())
    connection.close()
    with refused(migrations.NewerJournal, orchestrators.JOURNAL_NEWER, found=99, known=4):
        journal.read_all(path)
    reported: list[str] = []
    writer = journal.Journal(path, reported.append)
    writer.start()
    writer.begin(recorded.settings).append(0.0, STOPPED)
    writer.close(60.0)
    assert len(reported) == 1 and has(reported[0], orchestrators.JOURNAL_NEWER, found=99)
    with sqlite3.connect(path) as connection:
        assert list(connection.iterdump()) == before
    connection.close()


@needs_postgres
def test_a_newer_journal_in_postgres_is_refused(tmp_path: Path) -> None:
    with postgres(tmp_path / "database") as server:
        version1_in_postgres(server.url, tmp_path)
        with database.engine(server.url).begin() as connection:
            connection.execute(sa.text("update version set version = 99"))
        before = tables(server.url)
        with pytest.raises(migrations.NewerJournal):
            database.Lease(server.url, "mine", 60.0).take()
        assert tables(server.url) == before


def test_a_commit_that_seemed_to_fail_is_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection to a database may break between a commit and its answer. Here the answer alone is lost, once."""
    path = version1(tmp_path / JOURNAL)
    recorded = journal.read(path, "running")
    assert recorded is not None
    made = database.engine
    losing, reported = threading.Event(), threading.Event()

    def breaks(place: Path | str, *, readonly: bool = False) -> sa.Engine:
        engine = made(place, readonly=readonly)
        commit = engine.dialect.do_commit

        def commits(connection: Any) -> None:
            commit(connection)
            if losing.is_set():
                losing.clear()
                raise sqlite3.OperationalError("the answer is lost")

        monkeypatch.setattr(engine.dialect, "do_commit", commits)
        return engine

    monkeypatch.setattr(database, "engine", breaks)
    writer = journal.Journal(path, lambda text: reported.set() if "the answer is lost" in text else None)
    losing.set()
    writer.start()
    mine = writer.begin(recorded.settings)
    for number in range(5):
        mine.append(float(number), events.Notice("w0", 0, f"notice {number}"))
        assert number or reported.wait(60.0)
    writer.close(60.0)
    assert not losing.is_set()
    found = journal.read(path, "running")
    assert found is not None
    new = [event for _, event in found.events[len(recorded.events) :]]
    assert new == [events.Notice("w0", 0, f"notice {number}") for number in range(5)]
    assert numbers(path)["running"] == list(range(1, len(found.events) + 1))


def test_every_kind_of_event_of_version_1_can_be_read(tmp_path: Path) -> None:
    recorded = journal.read(version1(tmp_path / JOURNAL), "every")
    assert recorded is not None
    known = {kind.__name__ for kind in typing.get_args(events.Event)}
    stored = {type(event).__name__ for _, event in recorded.events}
    assert stored <= known and len(stored) == 20
    with sqlite3.connect(tmp_path / JOURNAL) as connection:
        texts = [text for (text,) in connection.execute("select event from events where job = 'every' order by seq")]
    connection.close()
    lost = json.loads(next(text for text in texts if '"NodeLost"' in text))
    for (_, event), text in zip(recorded.events, texts, strict=True):
        if isinstance(event, events.NodesLost):  # an event of version 1 is about one node
            assert json.loads(encode(event)) == {"type": "NodesLost", "nodes": [{k: v for k, v in lost.items() if k != "type"}]}
            continue
        assert json.loads(text).items() <= json.loads(encode(event)).items(), "fields may only be added"


def test_a_field_that_is_gone_is_not_looked_at(tmp_path: Path) -> None:
    """As if this Understudy had one field less than version 1, in each of its events, settings and pages."""
    path = version1(tmp_path / JOURNAL)
    with sqlite3.connect(path) as connection:
        for table, column in (("events", "event"), ("jobs", "settings"), ("progress", "page")):
            connection.execute(f"update {table} set {column} = json_set({column}, '$.gone', 1)")
        connection.execute(
            "update events set event = json_set(event, '$.position.gone', 1) where json_extract(event, '$.type') = 'Quiesced'"
        )
        connection.execute("update jobs set settings = json_set(settings, '$.spec.gone', 1, '$.timeouts.gone', 1)")
    connection.close()
    as_version1_said(path)


def test_an_event_that_is_not_known_stops_the_reader(tmp_path: Path) -> None:
    path = version1(tmp_path / JOURNAL)
    with sqlite3.connect(path) as connection:
        connection.execute("update events set event = replace(event, 'Quiesced', 'Rested')")
    connection.close()
    with refused(journal.Unreadable, orchestrators.JOB_UNREADABLE, path=path) as caught:
        journal.read_all(path)
    assert "Rested" in str(caught.value)


def test_an_event_gets_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule for it: a step rewrites it, for writers and for those who only read. As if `Quiesced` had been `Rested` until now."""
    path = version1(tmp_path / JOURNAL)
    with sqlite3.connect(path) as connection:
        connection.execute("update events set event = replace(event, 'Quiesced', 'Rested')")
    connection.close()

    def renamed(connection: sa.Connection) -> None:
        names = {"old": '{"type":"Rested",', "new": '{"type":"Quiesced",'}
        connection.execute(sa.text("update events set event = replace(event, :old, :new) where event like :old || '%'"), names)

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, renamed))
    monkeypatch.setattr(migrations, "VERSION", migrations.VERSION + 1)
    before = path.read_bytes()
    as_version1_said(path)
    assert path.read_bytes() == before
    assert has(append(path)[0], orchestrators.JOURNAL_UPGRADED, found=1, known=5)
    with sqlite3.connect(path) as connection:
        kinds = {json.loads(text)["type"] for (text,) in connection.execute("select event from events")}
    connection.close()
    assert "Quiesced" in kinds and "Rested" not in kinds
    assert version_in(path) == migrations.VERSION

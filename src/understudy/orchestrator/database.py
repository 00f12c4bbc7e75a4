"""The journal's storage: an SQLite file, or a PostgreSQL database that several orchestrators share; and its tables.

Of several orchestrators one leads. It holds a *lease* in the database, which it renews. When the lease has expired, another one takes it,
and with it a higher *fence* number. Every write of the journal checks in its own transaction that the fence is still the writer's, so a
leader that was stopped for a while and wakes up cannot add a row after its successor has read the journal. Agents obey the highest fence
that they have seen. An orchestrator that is stopped, or whose host disappears, in the middle of such a transaction keeps the lease's row
locked until the database ends the transaction, after `SILENT` seconds; no other orchestrator can take the lease before.

Times are the database's own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event as sa_event

from understudy.messages import orchestrators
from understudy.orchestrator import migrations

# The checks for a damaged SQLite file: QUICK reads every page and row, THOROUGH also compares the indexes with their tables. A start of
# the orchestrator skips that, because it takes several times as long. Events are read through their index, so a wrong index shows as
# events that are missing or in a wrong place, which the chain of checksums detects (`chain.py`); that job is put aside.
QUICK, THOROUGH = "quick_check(1)", "integrity_check(1)"
SILENT = 5.0  # seconds for which a transaction that holds the lease may be idle

metadata = sa.MetaData()
version = sa.Table("version", metadata, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("job", sa.Text, nullable=False, unique=True),
    sa.Column("settings", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),  # the submission, as JSON; empty for a job that was started with `understudy run`
    sa.Column("checksum", sa.Text, nullable=False, server_default=sa.text("''")),  # of these three; "": of an earlier version
)
events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("now", sa.Double, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False, server_default=sa.text("0")),  # within the job: 1, 2, 3, ...
    sa.Column("checksum", sa.Text, nullable=False, server_default=sa.text("''")),  # as in `chain.py`; "": of an earlier version
    sa.Index("ix_events_job_number", "job", "number", unique=True),
)
progress = sa.Table(
    "progress",
    metadata,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("page", sa.Text, nullable=False),
)
lease = sa.Table(
    "lease",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),  # there is one row
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)


class Deposed(Exception):
    """Another orchestrator leads now."""


def engine(place: Path | str, *, readonly: bool = False, synchronous: str = "NORMAL") -> sa.Engine:
    """Return an engine for the path of an SQLite file, or the URL of a PostgreSQL database.

    A transaction contains everything that is done in it, including changes of tables. `synchronous`: of SQLite; with FULL a transaction is
    on the disk when it ends.
    """
    if isinstance(place, str):
        url = sa.make_url(place)
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5})
    if readonly:
        return sa.create_engine("sqlite://", creator=lambda: _opened(place, "ro"), poolclass=sa.NullPool)
    made = sa.create_engine(sa.URL.create("sqlite", database=str(place)))

    @sa_event.listens_for(made, "connect")
    def configure(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        # Python's driver begins a transaction only before a change of rows, not of tables: so it is begun explicitly.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        cursor.close()

    @sa_event.listens_for(made, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return made


_sound: dict[tuple[Path, str], tuple[int, ...]] = {}  # files that this process has checked, how, and their state at that time


@contextmanager
def reading(place: Path | str, check: str = QUICK) -> Iterator[sa.Connection | None]:
    """Open a read-only connection to the journal in this version's form; None if there is none yet.

        Raises `migrations.NewerJournal`, and `sqlite3.DatabaseError` if an SQLite file is damaged. That is checked once in each process, as
    That is checked once in each process, if the file has changed.

        Nothing is changed: for an SQLite file of an older version the connection is to a migrated copy in memory. (A PostgreSQL database is
        read by the orchestrator that leads, and was migrated with the lease.)
    """
    if isinstance(place, Path):
        if not place.exists():
            yield None
            return
        _roll_back(place)
    source = engine(place.resolve() if isinstance(place, Path) else place, readonly=True)
    try:
        with source.connect() as connection:
            if isinstance(place, Path):
                _check(connection, place, check)
            found = migrations.version_of(connection)
            if found is None:
                yield None
            elif found == migrations.VERSION:
                yield connection
            else:
                assert isinstance(place, Path), "the leader has brought the database up to date"
                copy = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
                with copy.connect() as upgraded:
                    _driver(connection).backup(_driver(upgraded))
                    _driver(upgraded).text_factory = _text
                    try:
                        migrations.migrate(upgraded, found)
                    except sa.exc.DatabaseError as error:  # in memory, so there was room: the tables are not those of that version
                        raise sqlite3.DatabaseError(orchestrators.TABLES_DIFFER(version=found, reason=error.orig)) from error
                    yield upgraded
                copy.dispose()
    except UnicodeDecodeError as error:  # of SQLite's own message about a schema that is no text
        raise sqlite3.DatabaseError(orchestrators.SCHEMA_NOT_TEXT(error=error)) from error
    finally:
        source.dispose()


def _check(connection: sa.Connection, place: Path, check: str) -> None:
    """Raise `sqlite3.DatabaseError` if the file is damaged."""
    files = [file.stat() for end in ("", "-wal") if (file := place.with_name(place.name + end)).exists()]
    now = tuple(number for file in files for number in (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns))
    if _sound.get((place, check)) == now:
        return
    if (wrong := connection.exec_driver_sql(f"PRAGMA {check}").scalar()) != "ok":
        raise sqlite3.DatabaseError(wrong)
    _sound[place, check] = now


def _roll_back(place: Path) -> None:
    """Roll back the transaction of a killed process, which a reader cannot skip.

    In our files that is the very first one, the switch to write-ahead logging. SQLite's locks show whether the other process is alive.
    """
    try:
        with closing(_opened(place, "ro")) as reader:
            reader.execute("PRAGMA schema_version")
    except sqlite3.OperationalError as e:
        if e.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        with closing(_opened(place, "rw")) as writer:
            writer.execute("PRAGMA schema_version")


def _opened(place: Path, mode: str) -> sqlite3.Connection:
    """Open the file. Raises `sqlite3.OperationalError`, also if there is no such file."""
    opened = sqlite3.connect(f"file:{quote(str(place))}?mode={mode}", uri=True)
    opened.text_factory = _text
    return opened


def _text(data: bytes) -> str:
    """Decode text that may be damaged and not UTF-8. Its reader decides what follows, for this row only."""
    return data.decode(errors="surrogateescape")


def _driver(connection: sa.Connection) -> sqlite3.Connection:
    found = connection.connection.driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


def set_aside(place: Path) -> Path:
    """Rename a damaged SQLite file, and those that belong to it, and return its new name. Raises `OSError`."""
    number = 1
    while (kept := place.with_name(f"{place.name}.damaged-{number}")).exists():
        number += 1
    for end in ("-wal", "-shm", "-journal", ""):
        if (file := place.with_name(place.name + end)).exists():
            file.rename(kept.with_name(kept.name + end))
    return kept


def shown(place: Path | str) -> str:
    """Return the place without the password."""
    return str(place) if isinstance(place, Path) else sa.make_url(place).render_as_string(hide_password=True)


def prepare(connection: sa.Connection) -> int | None:
    """Make the tables, or migrate older ones, and return the older version if there was one.

    In the caller's transaction, which should be a short one's first part. Raises `migrations.NewerJournal`.
    """
    found = migrations.version_of(connection)
    if found is None:
        if connection.dialect.name == "sqlite":
            metadata.drop_all(connection)  # version 1 could be killed between making tables there and the first row, the version
        metadata.create_all(connection)
        connection.execute(sa.insert(version).values(version=migrations.VERSION))
    elif found < migrations.VERSION:
        migrations.migrate(connection, found)
        return found
    return None


class Lease:
    """One orchestrator's claim to lead, in a PostgreSQL database. Every method may raise `sqlalchemy.exc.SQLAlchemyError`."""

    def __init__(self, place: str, holder: str, seconds: float) -> None:
        """Create a lease, without taking it. `holder` names this orchestrator, and must be unique."""
        self._engine = engine(place)
        self._holder = holder
        self._seconds = seconds
        self.migrated: int | None = None  # the older version from which `take` has migrated the journal

    def take(self) -> int | None:
        """Return the fence number if this orchestrator leads from now on; None while another one does, whose tables are then left alone.

        Raises `migrations.NewerJournal`.
        """
        with self._engine.begin() as connection:
            _end_when_silent(connection)
            connection.execute(sa.text("select pg_advisory_xact_lock(7964311)"))  # two processes may make the tables at once
            # The lease may be older than this version: a migration that changes its table must handle that here, too.
            row = connection.execute(sa.select(lease)).first() if migrations.version_of(connection) is not None else None
            if row is not None and row.until > _now(connection) and row.holder != self._holder:
                return None
            self.migrated = prepare(connection)
            until = _now(connection) + self._seconds  # only now: migrating a long journal takes time
            values = {"holder": self._holder, "fence": (row.fence if row is not None else 0) + 1, "until": until}
            connection.execute(sa.update(lease) if row is not None else sa.insert(lease), {"number": 1, **values})
            return int(values["fence"])

    def renew(self, fence: int) -> None:
        """Renew the lease. Raises `Deposed` if another one has taken it."""
        with self._engine.begin() as connection:
            check(connection, fence)
            connection.execute(sa.update(lease).values(until=_now(connection) + self._seconds))

    def give_up(self, fence: int) -> None:
        """Give up the lease, so that another one can take it at once."""
        with self._engine.begin() as connection:
            check(connection, fence)
            connection.execute(sa.update(lease).values(until=0.0))


def check(connection: sa.Connection, fence: int) -> None:
    """Check that the lease was not taken since, and cannot be before this transaction ends. Raises `Deposed`."""
    _end_when_silent(connection)
    if connection.execute(sa.select(lease.c.fence).with_for_update()).scalar() != fence:
        raise Deposed


def _end_when_silent(connection: sa.Connection) -> None:
    """Limit the idle time of this transaction only: connections may be shared (PgBouncer)."""
    limit = {"limit": f"{SILENT * 1000:.0f}ms"}
    connection.execute(sa.text("select set_config('idle_in_transaction_session_timeout', :limit, true)"), limit)


def _now(connection: sa.Connection) -> float:
    found = connection.execute(sa.text("select extract(epoch from clock_timestamp())::double precision")).scalar()
    assert isinstance(found, float)
    return found

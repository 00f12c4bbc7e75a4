"""Where the journal is: an SQLite file, or a PostgreSQL database that several orchestrators share. And its tables.

Of several orchestrators one leads. It holds a *lease* in the database, which it renews; when that has run out another one takes
it, and with it a higher *fence* number. Every write of the journal checks in its own transaction that the fence is still the
writer's, so a leader that was stopped for a while and wakes up cannot add a line to what its successor has read. Agents obey the
highest fence that they have met.
Times are the database's own.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event as sa_event

VERSION = 1  # of the tables

metadata = sa.MetaData()
version = sa.Table("version", metadata, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("job", sa.Text, nullable=False, unique=True),
    sa.Column("settings", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),  # what was submitted, as JSON; empty for a job that was started with `understudy run`
)
events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("job", sa.Text, nullable=False, index=True),
    sa.Column("now", sa.Double, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
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
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),  # there is one
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("fence", sa.Integer, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)


class Deposed(Exception):
    """Another orchestrator leads by now."""


def engine(place: Path | str, *, readonly: bool = False) -> sa.Engine:
    """`place`: the path of an SQLite file, or the URL of a PostgreSQL database."""
    if isinstance(place, str):
        url = sa.make_url(place)
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5})
    made = sa.create_engine(f"sqlite:///file:{place}?mode=ro&uri=true" if readonly else f"sqlite:///{place}")
    if not readonly:

        @sa_event.listens_for(made, "connect")
        def configure(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=NORMAL")
            cursor.close()

    return made


def shown(place: Path | str) -> str:
    """Without the password."""
    return str(place) if isinstance(place, Path) else sa.make_url(place).render_as_string(hide_password=True)


def prepare(connection: sa.Connection) -> None:
    """Makes the tables. Raises `sqlalchemy.exc.InvalidRequestError` if they are of another version."""
    metadata.create_all(connection)
    found = connection.execute(sa.select(version.c.version)).scalar()
    if found is None:
        connection.execute(sa.insert(version).values(version=VERSION))
    elif found != VERSION:
        raise sa.exc.InvalidRequestError(f"its tables are of version {found}, this Understudy writes version {VERSION}")


class Lease:
    """One orchestrator's claim to lead, in a PostgreSQL database. Every method may raise `sqlalchemy.exc.SQLAlchemyError`."""

    def __init__(self, place: str, holder: str, seconds: float) -> None:
        """`holder` names this orchestrator, and must be unlike every other one's."""
        self._engine = engine(place)
        self._holder = holder
        self._seconds = seconds

    def take(self) -> int | None:
        """The fence number if this orchestrator leads from now on; None while another one does."""
        with self._engine.begin() as connection:
            connection.execute(sa.text("select pg_advisory_xact_lock(7964311)"))  # two that make the tables at once
            prepare(connection)
            row = connection.execute(sa.select(lease)).first()
            now = _now(connection)
            if row is not None and row.until > now and row.holder != self._holder:
                return None
            values = {"holder": self._holder, "fence": (row.fence if row is not None else 0) + 1, "until": now + self._seconds}
            connection.execute(sa.update(lease) if row is not None else sa.insert(lease), {"number": 1, **values})
            return int(values["fence"])

    def renew(self, fence: int) -> None:
        """Raises `Deposed` if another one has taken it."""
        with self._engine.begin() as connection:
            check(connection, fence)
            connection.execute(sa.update(lease).values(until=_now(connection) + self._seconds))

    def give_up(self, fence: int) -> None:
        """Lets another one take it at once."""
        with self._engine.begin() as connection:
            check(connection, fence)
            connection.execute(sa.update(lease).values(until=0.0))


def check(connection: sa.Connection, fence: int) -> None:
    """That nobody has taken the lease since, nor can before this transaction ends. Raises `Deposed`."""
    if connection.execute(sa.select(lease.c.fence).with_for_update()).scalar() != fence:
        raise Deposed


def _now(connection: sa.Connection) -> float:
    found = connection.execute(sa.text("select extract(epoch from clock_timestamp())::double precision")).scalar()
    assert isinstance(found, float)
    return found

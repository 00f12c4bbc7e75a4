"""A member's durable state in an SQLite file: its identity, the roster, its hard state, its log, and what it knows of the others
(`memory`).

Each write is on the disk, not only in the system's memory, when it returns (a write-ahead log with `synchronous=FULL`).

Rows have checksums, and those of the log are a chain (`chain.py`). A member whose file is damaged does not know what it has promised. It is
treated as one that has lost its disk (`roster.py`): the file is kept under another name, and the other members go on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa

from understudy.messages import quorums
from understudy.orchestrator import database
from understudy.orchestrator.chain import Position, checksum_of
from understudy.orchestrator.quorum.memory import Acknowledged
from understudy.orchestrator.quorum.raft import Entry, Step

FILE = "quorum.db"
_metadata = sa.MetaData()
_member = sa.Table(
    "member",
    _metadata,
    sa.Column("identity", sa.Text, primary_key=True),
    sa.Column("roll", sa.Text, key="roster", nullable=False),  # its column name in files of this version
    sa.Column("term", sa.Integer, nullable=False),
    sa.Column("vote", sa.Integer, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False, server_default=sa.text("''")),  # of the others; "": by an earlier version
)
_log = sa.Table(
    "log",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("term", sa.Integer, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False, server_default=sa.text("''")),  # as in `chain.py`; "": by an earlier version
)
_acknowledged = sa.Table(  # as in `memory`
    "acknowledged",
    _metadata,
    sa.Column("member", sa.Integer, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.Integer, nullable=False) for name in ("term", "last", "last_term", "committed", "committed_term")),
)
_forgot = sa.Table("forgot", _metadata, sa.Column("why", sa.Text, nullable=False))  # a row: this disk was restored from an earlier time


class Damaged(ValueError):
    """The file differs from what was written."""


def opened(place: Path, tell: Callable[[str], None]) -> Storage:
    """Open the storage at `place`, or a new one if that is damaged. Raises `sqlalchemy.exc.OperationalError` and `OSError`."""
    try:
        return Storage(place)
    except (Damaged, sa.exc.DatabaseError) as error:
        if isinstance(error, sa.exc.OperationalError):
            raise
        kept = database.set_aside(place)
        tell(quorums.STORAGE_DAMAGED(path=place, reason=str(getattr(error, "orig", error)), kept=kept))
        return Storage(place)


class Storage:
    """A member's file. Every method may raise `sqlalchemy.exc.SQLAlchemyError`; then nothing of it was written."""

    def __init__(self, place: Path) -> None:
        """Open the file. Raises `Damaged` as well."""
        self._engine = database.engine(place, synchronous="FULL")
        with self._engine.begin() as connection:
            _metadata.create_all(connection)
            for table in ("member", "log"):
                if "checksum" not in {column["name"] for column in sa.inspect(connection).get_columns(table)}:
                    connection.execute(sa.text(f"alter table {table} add column checksum text default '' not null"))
            row = connection.execute(sa.select(_member)).first()
            if row is None:
                identity = secrets.token_hex(16)
                values = {"identity": identity, "roster": "[]", "term": 0, "vote": -1}
                connection.execute(sa.insert(_member).values(**values, checksum=checksum_of(*values.values())))
                row = connection.execute(sa.select(_member)).one()
            if row.checksum not in ("", checksum_of(row.identity, row.roster, row.term, row.vote)):
                raise Damaged(quorums.MEMBER_ROW_DAMAGED())
            self.identity: str = row.identity
            self.roster: tuple[str, ...] = tuple(json.loads(row.roster))
            self.hard_state: tuple[int, int] = (row.term, row.vote)
            rows = connection.execute(sa.select(_acknowledged)).mappings()
            self.acknowledged = {row["member"]: Acknowledged(**{name: row[name] for name in row if name != "member"}) for row in rows}
            self.forgot: str = connection.execute(sa.select(_forgot.c.why)).scalar() or ""
            self._positions = [Position()]  # of the log's entries, by number
            self.log = [self._checked(row) for row in connection.execute(sa.select(_log).order_by(_log.c.number))]

    def _checked(self, row: sa.Row[tuple[int, int, str, str]]) -> Entry:
        position = self._positions[-1].after(row.term, row.text)
        if row.number != position.number or row.checksum not in ("", position.checksum):
            raise Damaged(quorums.ENTRY_DAMAGED(number=position.number))
        self._positions.append(position)
        return Entry(row.term, row.text)

    def enrol(self, names: tuple[str, ...]) -> None:
        with self._engine.begin() as connection:
            self._change(connection, roster=json.dumps(names))

    def forget(self, why: str) -> None:
        """Record that this member takes no part from now on."""
        with self._engine.begin() as connection:
            connection.execute(sa.insert(_forgot).values(why=why))

    def write(self, step: Step, acknowledged: Mapping[int, Acknowledged]) -> None:
        """Write a step. `acknowledged`: by member, the new entries."""
        positions = []
        with self._engine.begin() as connection:
            if step.hard_state is not None:
                self._change(connection, term=step.hard_state[0], vote=step.hard_state[1])
            if step.entries:
                connection.execute(sa.delete(_log).where(_log.c.number > step.keep))
                rows, position = [], self._positions[step.keep]
                for entry in step.entries:
                    position = position.after(entry.term, entry.text)
                    positions.append(position)
                    rows.append({**position._asdict(), "term": entry.term, "text": entry.text})
                connection.execute(sa.insert(_log), rows)
            if acknowledged:
                connection.execute(sa.delete(_acknowledged).where(_acknowledged.c.member.in_(acknowledged)))
                connection.execute(sa.insert(_acknowledged), [{"member": member, **vars(row)} for member, row in acknowledged.items()])
        if step.entries:
            self._positions[step.keep + 1 :] = positions

    @staticmethod
    def _change(connection: sa.Connection, **values: object) -> None:
        """Change the member's row."""
        row = connection.execute(sa.select(_member)).one()
        new = {"identity": row.identity, "roster": row.roster, "term": row.term, "vote": row.vote, **values}
        connection.execute(sa.update(_member).values(**new, checksum=checksum_of(*new.values())))

    def close(self) -> None:
        self._engine.dispose()

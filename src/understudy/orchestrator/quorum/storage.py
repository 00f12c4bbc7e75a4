"""What a member must not forget: its identity, the roster, its hard state and its log, in an SQLite file. And what it knows of the others
(`memory`). Each write is on the disk, not only in the system's memory, when it returns (a write-ahead log with `synchronous=FULL`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from understudy.orchestrator import database
from understudy.orchestrator.quorum.memory import Acknowledged
from understudy.orchestrator.quorum.raft import Entry, Step

FILE = "quorum.db"
_metadata = sa.MetaData()
_member = sa.Table(
    "member",
    _metadata,
    sa.Column("identity", sa.Text, primary_key=True),
    sa.Column("roll", sa.Text, key="roster", nullable=False),  # its name in files of today
    sa.Column("term", sa.Integer, nullable=False),
    sa.Column("vote", sa.Integer, nullable=False),
)
_log = sa.Table(
    "log",
    _metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("term", sa.Integer, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)
_acknowledged = sa.Table(  # as `memory` has it
    "acknowledged",
    _metadata,
    sa.Column("member", sa.Integer, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.Integer, nullable=False) for name in ("term", "last", "last_term", "committed", "committed_term")),
)
_forgot = sa.Table("forgot", _metadata, sa.Column("why", sa.Text, nullable=False))  # a row: this disk is one of an earlier time


class Storage:
    """Every method may raise `sqlalchemy.exc.SQLAlchemyError`; then nothing of it is there."""

    def __init__(self, place: Path) -> None:
        self._engine = database.engine(place, synchronous="FULL")
        with self._engine.begin() as connection:
            _metadata.create_all(connection)
            row = connection.execute(sa.select(_member)).first()
            if row is None:
                connection.execute(sa.insert(_member).values(identity=secrets.token_hex(16), roster="[]", term=0, vote=-1))
                row = connection.execute(sa.select(_member)).one()
            self.identity: str = row.identity
            self.roster: tuple[str, ...] = tuple(json.loads(row.roster))
            self.hard_state: tuple[int, int] = (row.term, row.vote)
            rows = connection.execute(sa.select(_acknowledged)).mappings()
            self.acknowledged = {row["member"]: Acknowledged(**{name: row[name] for name in row if name != "member"}) for row in rows}
            self.forgot: str = connection.execute(sa.select(_forgot.c.why)).scalar() or ""
            self.log = [Entry(term, text) for term, text in connection.execute(sa.select(_log.c.term, _log.c.text).order_by(_log.c.number))]

    def enrol(self, names: tuple[str, ...]) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.update(_member).values(roster=json.dumps(names)))

    def forget(self, why: str) -> None:
        """From now on this member takes no part."""
        with self._engine.begin() as connection:
            connection.execute(sa.insert(_forgot).values(why=why))

    def write(self, step: Step, acknowledged: Mapping[int, Acknowledged]) -> None:
        """`acknowledged`: by member, what is new."""
        with self._engine.begin() as connection:
            if step.hard_state is not None:
                connection.execute(sa.update(_member).values(term=step.hard_state[0], vote=step.hard_state[1]))
            if step.entries:
                connection.execute(sa.delete(_log).where(_log.c.number > step.keep))
                rows = [{"number": n, "term": entry.term, "text": entry.text} for n, entry in enumerate(step.entries, step.keep + 1)]
                connection.execute(sa.insert(_log), rows)
            if acknowledged:
                connection.execute(sa.delete(_acknowledged).where(_acknowledged.c.member.in_(acknowledged)))
                connection.execute(sa.insert(_acknowledged), [{"member": member, **vars(row)} for member, row in acknowledged.items()])

    def close(self) -> None:
        self._engine.dispose()

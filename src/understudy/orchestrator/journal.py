"""The journal: every event with its time, in the order in which the machine handled it. Replaying it gives the state.

An SQLite file in write-ahead mode, so that it can be read while it is written (`understudy status` and `report` do
so). Writing is not on the way of a recovery: the service sends the commands first and hands the event to a thread
that writes it right behind, many in one transaction if they come fast. A commit with synchronous=NORMAL does not wait
for the disk, but on a slow or shared file system it can still take long, and a rank that is down costs more than the
last milliseconds of a journal. What those milliseconds may cost is repaired elsewhere: an orchestrator killed between
sending and writing finds the agents repeating what they have, and repeats what it asks for; workers ignore what they
have had.

A disk that is full or gone must not stop training: it is told once, the events wait in memory, and every later write
tries again.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event as sa_event

from understudy.core.events import Event
from understudy.core.machine import Machine
from understudy.links.messages import decode, encode
from understudy.links.page import Activity, PageView
from understudy.orchestrator.settings import Settings

FILE = "journal.db"

_metadata = sa.MetaData()
_settings = sa.Table("settings", _metadata, sa.Column("settings", sa.Text, nullable=False))
_events = sa.Table(
    "events",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("now", sa.Float, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
)
_progress = sa.Table(
    "progress",
    _metadata,
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("page", sa.Text, nullable=False),
)


def _engine(path: Path, *, readonly: bool = False) -> sa.Engine:
    url = f"sqlite:///file:{path}?mode=ro&uri=true" if readonly else f"sqlite:///{path}"
    engine = sa.create_engine(url)
    if not readonly:

        @sa_event.listens_for(engine, "connect")
        def configure(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=NORMAL")
            cursor.close()

    return engine


Item = tuple[float, Event] | Mapping[str, PageView]


class Journal:
    """The writer. `start` it, `append` from the service's thread, `close` it. `failed` is called once, from the
    writer's thread, when the disk refuses.
    """

    def __init__(self, run_dir: Path, settings: Settings, failed: Callable[[str], None]) -> None:
        self._path = run_dir / FILE
        self._text = settings.to_json()
        self._failed = failed
        self._told = False
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append(self, now: float, event: Event) -> None:
        self._items.put((now, event))

    def progress(self, pages: Mapping[str, PageView]) -> None:
        """Where the workers are: for looking at a job after its end, not for replaying. Each overwrites the last."""
        self._items.put(dict(pages))

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left, for at most `timeout` seconds."""
        self._items.put(None)
        self._thread.join(timeout)

    def _write_all(self) -> None:
        engine = _engine(self._path)
        unwritten: list[tuple[float, str]] = []
        pages: dict[str, str] = {}
        open_ = True
        while open_:
            batch = [self._items.get()]
            while not self._items.empty():
                batch.append(self._items.get())
            for item in batch:
                if item is None:
                    open_ = False
                elif isinstance(item, tuple):
                    unwritten.append((item[0], encode(item[1])))
                else:
                    pages.update({worker: json.dumps(asdict(page)) for worker, page in item.items()})
            try:
                self._write(engine, unwritten, pages)
            except (sa.exc.SQLAlchemyError, OSError) as error:
                if not self._told:
                    self._told = True
                    self._failed(f"{self._path} cannot be written ({error}); training goes on without it")
            else:
                unwritten.clear()
                pages.clear()
        engine.dispose()

    def _write(self, engine: sa.Engine, rows: list[tuple[float, str]], pages: dict[str, str]) -> None:
        with engine.begin() as connection:
            _metadata.create_all(connection)
            if connection.execute(sa.select(_settings)).first() is None:
                connection.execute(sa.insert(_settings).values(settings=self._text))
            if rows:
                connection.execute(sa.insert(_events), [{"now": now, "event": text} for now, text in rows])
            if pages:
                connection.execute(sa.delete(_progress).where(_progress.c.worker.in_(list(pages))))
                connection.execute(sa.insert(_progress), [{"worker": w, "page": p} for w, p in pages.items()])


def read(run_dir: Path) -> tuple[Settings, list[tuple[float, Event]], dict[str, PageView]] | None:
    """Settings, events with their times, last known pages. None if there is no journal (yet)."""
    path = run_dir / FILE
    if not path.exists():
        return None
    engine = _engine(path.resolve(), readonly=True)
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("settings"):
                return None
            settings = connection.execute(sa.select(_settings.c.settings)).scalar()
            rows = connection.execute(sa.select(_events.c.now, _events.c.event).order_by(_events.c.seq)).all()
            pages = connection.execute(sa.select(_progress.c.worker, _progress.c.page)).all()
    finally:
        engine.dispose()
    if settings is None:
        return None
    events = [(now, decode(text)) for now, text in rows]
    return (
        Settings.from_json(settings),
        [(now, event) for now, event in events if isinstance(event, Event)],
        {worker: _page(text) for worker, text in pages},
    )


def replay(settings: Settings, events: list[tuple[float, Event]]) -> Machine:
    """The machine as it was after these events."""
    machine = Machine(settings.spec, settings.timeouts)
    for now, event in events:
        machine.handle(event, now)
    return machine


def _page(text: str) -> PageView:
    fields = json.loads(text)
    return PageView(**{**fields, "activity": Activity(fields["activity"])})

"""Readers of a job's events, while these are written: each gets every event once and in order, from wherever it begins, however slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.integration.postgres import needs_postgres, postgres

from understudy.common.names import JOURNAL
from understudy.core import events
from understudy.core.model import JobSpec, Timeouts
from understudy.orchestrator import history, journal
from understudy.orchestrator.history import History
from understudy.orchestrator.settings import Settings

JOBS = ("a", "b")
COUNT = 4000  # events of each job


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk is not what is tried here, except where a test asks for it."""
    monkeypatch.setattr(history, "SETTLE", 60.0)


class Life:
    """One orchestrator's: its journal and history, and a thread that writes as fast as it can."""

    def __init__(self, place: Path | str) -> None:
        self.journal = journal.Journal(place, pytest.fail)
        self.history = History(self.journal)
        self.journal.start()
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.writers = {job: self.journal.begin(Settings(JobSpec(job, 1, 1), Timeouts())) for job in JOBS}

    def write(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            for job, writer in self.writers.items():
                writer.append(float(number), events.Notice(job, 0, str(number)))

    def writing(self, first: int, last: int) -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.to_thread(self.write, first, last))


@contextlib.contextmanager
def alive(place: Path | str) -> Iterator[Life]:
    life = Life(place)
    yield life
    life.journal.close(60.0)


async def followed(life: Life, job: str, after: int, turns: int = 0, until: int = 0) -> list[int]:
    """The numbers of what a follower gets, whose text has the number that it must have. It lets others go first up to `turns` times."""
    got: list[int] = []
    chance = random.Random(after)
    async with contextlib.aclosing(life.history.follow(job, after, life.over)) as blocks:
        async for block in blocks:
            for event in block:
                shown = event.shown()
                assert (shown["worker"], shown["text"], shown["number"], shown["time"]) == (
                    job,
                    str(event.number),
                    event.number,
                    event.number,
                )
                got.append(event.number)
            if until and got and got[-1] >= until:
                break
            for _ in range(chance.randint(0, turns)):
                await asyncio.sleep(0)
    return got


async def read_while_written(place: Path | str) -> None:
    with alive(place) as life:
        life.write(1, 500)
        assert await life.history.settled()
        writing = life.writing(501, COUNT)
        early = [followed(life, job, after, turns) for job in JOBS for after in (0, 1, 499, 3000) for turns in (0, 500)]
        readers = [asyncio.create_task(reader) for reader in early]
        starts: list[int] = []
        while not writing.done():  # others come at any time, from anywhere
            found = await life.history.past("a", 0)
            starts.append(random.Random(len(starts)).randrange(len(found) or 1) * 40)
            readers.append(asyncio.create_task(followed(life, "a", starts[-1])))
            await followed(life, "b", starts[-1], until=starts[-1] + 1)  # and go
        await writing
        life.over.set_result(0)
        expected = [after for _ in JOBS for after in (0, 1, 499, 3000) for _ in range(2)] + starts
        for after, got in zip(expected, await asyncio.gather(*readers), strict=True):
            assert got == list(range(after + 1, COUNT + 1))
        assert not life.history._tails, "nothing is kept without a reader"
    with alive(place) as life:  # another life of the orchestrator goes on with the numbers
        life.write(COUNT + 1, COUNT + 10)
        life.over.set_result(0)
        assert await followed(life, "a", COUNT - 5) == list(range(COUNT - 4, COUNT + 11))
        assert [event.number async for block in life.history.read("b", COUNT) for event in block] == list(range(COUNT + 1, COUNT + 11))


@pytest.mark.parametrize("kept", [3, 1000])
def test_no_gaps_and_no_repeats_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """With few events in memory readers change between it and the journal all the time."""
    monkeypatch.setattr(history, "KEPT", kept)
    asyncio.run(read_while_written(tmp_path / JOURNAL))


@needs_postgres
def test_the_same_in_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT", 3)
    with postgres(tmp_path / "database") as server:
        asyncio.run(read_while_written(server.url))


def test_what_is_kept_is_limited_in_number_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEPT_SIZE", 10_000)

    async def run() -> None:
        with alive(tmp_path / JOURNAL) as life:
            asleep = life.history.follow("a", 0, life.over)  # gets one block and does not come back
            life.write(1, 10)
            assert await life.history.settled()
            assert (await anext(asleep))[0].number == 1
            await life.writing(11, 3000)
            assert await life.history.settled()
            (tail,) = life.history._tails.values()
            assert 0 < len(tail.events) <= history.KEPT and sum(len(event.event) for event in tail.events) <= 10_000
            for text in ("x" * 20_000, "y"):
                life.writers["a"].append(0.0, events.Notice("a", 0, text))
                assert await life.history.settled()
                assert len(tail.events) == 1, "the last one is always there"
            await asleep.aclose()
            assert not life.history._tails

    asyncio.run(run())


def test_a_block_ends_when_it_is_large(tmp_path: Path) -> None:
    async def run() -> None:
        with alive(tmp_path / JOURNAL) as life:
            for _ in range(5):
                life.writers["a"].append(0.0, events.Notice("a", 0, "x" * 600_000))
            assert await life.history.settled()
            assert [len(block) async for block in life.history.read("a", 0)] == [2, 2, 1]

    asyncio.run(run())


def test_events_come_when_the_journal_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it cannot be written a follower hears that there is nothing new, and afterwards everything; the end waits for it."""
    monkeypatch.setattr(history, "AGAIN", 0.01)
    monkeypatch.setattr(history, "SETTLE", 0.01)
    obstacle = tmp_path / JOURNAL
    obstacle.mkdir()  # nothing can be written under this name
    failed = threading.Event()

    async def run() -> None:
        file = journal.Journal(obstacle, lambda text: failed.set())
        past = History(file)
        file.start()
        over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        writer = file.begin(Settings(JobSpec("a", 1, 1), Timeouts()))
        writer.append(1.0, events.Notice("a", 0, "1"))
        await asyncio.to_thread(failed.wait, 60.0)
        with pytest.raises(sa.exc.SQLAlchemyError):
            await past.past("a", 0)
        over.set_result(0)
        following = past.follow("a", 0, over)
        assert await anext(following) == [] and await anext(following) == []
        obstacle.rmdir()
        monkeypatch.setattr(history, "SETTLE", 60.0)
        assert [event.number async for block in following for event in block] == [1]
        file.close(60.0)

    asyncio.run(run())


def test_a_follower_hears_that_there_is_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_ALIVE", 0.01)

    async def run() -> None:
        with alive(tmp_path / JOURNAL) as life:
            following = life.history.follow("a", 0, life.over)
            assert await anext(following) == [] and await anext(following) == []
            life.write(1, 1)
            found: list[int] = []
            while not found:
                found = [event.number for event in await anext(following)]
            assert found == [1]
            await following.aclose()

    asyncio.run(run())


def test_no_field_of_an_event_has_the_name_of_what_is_added() -> None:
    for kind in typing.get_args(events.Event):
        assert not {"number", "time", "type"} & {field.name for field in fields(kind)}, kind
    assert json.loads(json.dumps(journal.Numbered("a", 7, 1.5, '{"type":"Finished"}').shown())) == {
        "number": 7,
        "time": 1.5,
        "type": "Finished",
    }

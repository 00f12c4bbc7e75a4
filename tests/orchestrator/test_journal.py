"""The journal: replay gives the same state, readers may look while it is written, and a bad disk stops nothing."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from rich.console import Console
from tests.message_texts import codes, refused

from understudy.cli import show
from understudy.common.console import say
from understudy.common.names import JOURNAL
from understudy.common.page_view import UNKNOWN, Activity, PageView
from understudy.core import events
from understudy.core.machine import Machine
from understudy.core.model import BuddyCopyRef, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.messages import orchestrators
from understudy.orchestrator import __main__ as start
from understudy.orchestrator import database, journal, rows, views
from understudy.orchestrator.settings import Settings

SETTINGS = Settings(JobSpec("job", 2, 2, spares=1), Timeouts())
STORY: list[events.Event] = [
    events.NodeJoined("n0", "127.0.0.1", 0),
    *(events.WorkerStarted(f"w{number}", "n0", 100 + number) for number in range(3)),
    *(events.WorkerWarm(f"w{number}", f"127.0.0.1:{7000 + number}") for number in range(3)),
    events.Committed("w0", 0, 0, 1),
    events.Committed("w1", 0, 0, 1),
    events.Notice("w0", 0, "a value cannot survive"),
    events.WorkerLost("w1", LossCause.KILLED, "signal 9", 8.5),
    events.Quiesced("w0", 1, Position(4, VotePhase.RUNNING), (BuddyCopyRef(1, 3),), 4),
    events.PhaseDone("w2", 1, "transfer", 11.0, 0.25, 1 << 20),
    events.Verified("w2", 1, 12, ("a worker of the data loader began again",)),
    events.Committed("w0", 1, 4, 5),
]


def write(run_dir: Path, story: list[events.Event]) -> Machine:
    machine = Machine(SETTINGS.spec, SETTINGS.timeouts)
    file = journal.Journal(run_dir / JOURNAL, pytest.fail)
    file.start()
    writer = file.begin(SETTINGS)
    for number, event in enumerate(story):
        machine.handle(event, float(number))
        writer.append(float(number), event)
    writer.progress({"w2": PageView(9, 1.0, Activity.RUNNING, 5, 5, 2.0, 40, 0.5)})
    writer.progress({"w2": PageView(10, 1.2, Activity.VOTED, 6, 6, 2.0, 41, 0.5)})
    file.close(60.0)
    return machine


def test_replay_gives_the_same_state(tmp_path: Path) -> None:
    for length in range(len(STORY) + 1):
        run_dir = tmp_path / str(length)
        run_dir.mkdir()
        machine = write(run_dir, STORY[:length])
        found = journal.read(run_dir / JOURNAL)
        assert found is not None
        settings, reported, pages = found.settings, found.events, found.pages
        assert settings == SETTINGS
        assert [event for _, event in reported] == STORY[:length]
        assert journal.replay(settings, reported).state == machine.state
        assert pages["w2"].transaction == 6


def test_status_and_report_from_the_journal_alone(tmp_path: Path) -> None:
    machine = write(tmp_path, STORY)
    pages = {"w2": PageView(10, 1.2, Activity.VOTED, 6, 6, 2.0, 41, 0.5)}
    status = views.offline_status(tmp_path)
    assert status == views.status(machine, pages)
    assert (status["job"], status["state"], status["generation"], status["step"]) == ("job", "recovering", 1, 5)
    assert status["ranks"][1] == {
        "rank": 1,
        "worker": "w2",
        "pid": 102,
        "node": "n0",
        "device": "",
        "state": "training",
        "step": 6,
        "proven": None,
    }
    assert status["spares"] == [] and status["notices"] == ["rank 0: a value cannot survive"]

    report = views.offline_report(tmp_path)
    assert report == views.report(machine)
    (incident,) = report["incidents"]
    assert (incident["cause"], incident["rank"], incident["old_worker"], incident["new_worker"]) == (
        "killed",
        1,
        "w1",
        "w2",
    )
    assert (incident["decision"], incident["step"], incident["steps_lost"]) == ("redo", 4, 0)
    assert incident["seconds"] is None  # still open
    assert list(incident["phases"]) == ["detect", "abort", "assign", "setup", "attach", "transfer", "verify", "redo"]
    assert incident["phases"]["transfer"] == 0.25 and incident["phases"]["detect"] == 1.5
    assert (incident["bytes_moved"], incident["digests_verified"]) == (1 << 20, 12)
    assert incident["notes"] == ["rank 1: a worker of the data loader began again"]


def test_a_process_id_of_zero_in_an_earlier_journal_is_not_known(tmp_path: Path) -> None:
    """Of a worker that is still starting. An unpublished one reads as 0, which means the caller's own group to kill(2)."""
    file = journal.Journal(tmp_path / JOURNAL, pytest.fail)
    file.start()
    writer = file.begin(SETTINGS)
    writer.append(0.0, STORY[0])
    for number in range(3):
        started = events.WorkerStarted(f"w{number}", "n0", None)
        writer.append(1.0, started, f'{{"type":"WorkerStarted","worker":"w{number}","node":"n0","pid":0}}')
    file.close(60.0)
    shown, _ = views.offline_events(tmp_path)
    assert [event["pid"] for event in shown[1:]] == [None] * 3
    with database.reading(tmp_path / JOURNAL) as connection:
        assert connection is not None
        columns = database.events.c
        texts = connection.execute(sa.select(columns.event).where(columns.number > 1)).scalars().all()
    assert len(texts) == 3 and all('"pid":0' in text for text in texts), "reading changes nothing"
    assert [journal.Numbered("job", 1, 0.0, text).shown()["pid"] for text in texts] == [None] * 3
    status = views.offline_status(tmp_path)
    assert [spare["pid"] for spare in status["spares"]] == [None]


def test_a_worker_that_is_still_starting_has_no_process_id() -> None:
    machine = Machine(SETTINGS.spec, SETTINGS.timeouts)
    machine.handle(STORY[0], 0.0)
    (spare,) = views.status(machine, {})["spares"]
    assert (spare["state"], spare["pid"]) == ("starting", None)
    console = Console(file=io.StringIO(), width=200)
    console.print(show.status_view(cast("dict[str, Any]", views.status(machine, {}))))
    (line,) = [line for line in cast("io.StringIO", console.file).getvalue().splitlines() if "starting" in line]
    assert [cell.strip() for cell in line.strip("│|").split("│")][:3] == ["spare", spare["worker"], "-"]


def test_no_journal(tmp_path: Path) -> None:
    assert journal.read(tmp_path / JOURNAL) is None
    with pytest.raises(views.NoJournal):
        views.offline_status(tmp_path)


def test_a_disk_that_rejects_writes_is_reported_once_and_caught_up_later(tmp_path: Path) -> None:
    obstacle = tmp_path / JOURNAL
    obstacle.mkdir()  # nothing can be written under this name
    reported: list[str] = []
    failed = threading.Event()

    def hear(text: str) -> None:
        reported.append(text)
        failed.set()

    file = journal.Journal(obstacle, hear)
    file.start()
    writer = file.begin(SETTINGS)
    writer.append(0.0, STORY[0])
    assert failed.wait(60.0)
    writer.append(1.0, STORY[1])
    writer.append(2.0, STORY[2])
    obstacle.rmdir()
    writer.append(3.0, STORY[3])
    file.close(60.0)
    assert [codes(text)[0] for text in reported] == [orchestrators.JOURNAL_UNWRITTEN.code, orchestrators.JOURNAL_WRITTEN_AGAIN.code]
    found = journal.read(obstacle)
    assert found is not None and [event for _, event in found.events] == STORY[:4]


def test_several_jobs_in_one_journal(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    others = {name: Settings(JobSpec(name, 1, 1), Timeouts()) for name in ("b", "a")}
    file = journal.Journal(path, pytest.fail)
    file.start()
    writers = {name: file.begin(settings, f"request of {name}") for name, settings in others.items()}
    for number, event in enumerate(STORY):
        writers["ab"[number % 2]].append(float(number), event)
    page = PageView(9, 1.0, Activity.RUNNING, 5, 5, 2.0, 40, 0.5)
    writers["a"].progress({"w0": page})
    file.begin(others["a"], "said again, by an orchestrator that was started again")
    file.close(60.0)
    found = journal.read_all(path)
    assert list(found) == ["b", "a"], "as they were begun"
    for name, recorded in found.items():
        assert (recorded.settings, recorded.request) == (others[name], f"request of {name}")
        assert [event for _, event in recorded.events] == STORY["ab".index(name) :: 2]
    assert (found["a"].pages, found["b"].pages) == ({"w0": page}, {})
    assert journal.read(path, "a") == found["a"]
    assert journal.read(path, "c") is None


def test_a_page_of_another_version() -> None:
    page = PageView(9, 1.0, Activity.RUNNING, 5, 5, 2.0, 40, 0.5, waits=1)
    there = page._asdict()
    assert rows.page(json.dumps(there | {"heat": 36.6})) == page
    del there["waits"]
    assert rows.page(json.dumps(there)) == page._replace(waits=UNKNOWN)


def test_settings_that_are_not() -> None:
    assert Settings.from_json(SETTINGS.to_json()) == SETTINGS
    assert Settings.from_json('{"spec": {"job": "j", "world_size": 1, "workers_per_node": 1}}').timeouts == Timeouts()
    with refused(ValueError, orchestrators.SETTINGS_REFUSED) as caught:
        Settings.from_json('{"spec": {"job": "j", "workers_per_node": 1}}')
    assert "world_size" in str(caught.value)
    with refused(ValueError, orchestrators.SETTINGS_REFUSED) as caught:
        Settings.from_json('{"spec": {"job": "j", "world_size": 1, "workers_per_node": 1}, "timeouts": {"hang_floor": 0.1}}')
    assert "hang_floor" in str(caught.value)


def test_a_full_disk_for_the_output_does_not_end_the_reporting_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`understudy run > output 2>&1` on a disk that is full: the journal's thread reports that it cannot write, and has to go on."""
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        for tell in (say, say):
            tell("something")
        with contextlib.suppress(OSError):
            full.close()  # what could not be written is still there


def test_what_fails_after_a_commit_writes_nothing_again(tmp_path: Path) -> None:
    reported: list[str] = []
    file = journal.Journal(tmp_path / JOURNAL, reported.append)
    calls: list[int] = []

    def listener(written: list[journal.Numbered]) -> None:
        calls.append(len(written))
        if len(calls) == 2:
            raise RuntimeError("the listener's bug")

    file.listener = listener
    file.start()
    writer = file.begin(SETTINGS)
    for number, event in enumerate(STORY[:2]):
        reached = threading.Event()
        writer.append(float(number), event)
        writer.mark(reached.set)
        assert reached.wait(60.0), "the mark is reached at the next attempt"
    file.close(60.0)
    assert len(calls) > 2 and codes(reported[0]) == [orchestrators.JOURNAL_UNWRITTEN.code, orchestrators.JOURNAL_BUG.code]
    found = journal.read(tmp_path / JOURNAL)
    assert found is not None and [event for _, event in found.events] == STORY[:2] and found.chain.last == writer.chain.last


def test_a_disk_without_room_to_read_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's driver reports it itself where the journal is looked at before it is read."""
    reported: list[str] = []
    monkeypatch.setattr(start, "say", reported.append)
    full = sqlite3.OperationalError("disk I/O error")
    full.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    outcomes = iter([full, full, None])

    def refused(place: Path) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    monkeypatch.setattr(database, "_roll_back", refused)
    write(tmp_path, STORY)
    found = start._patiently(tmp_path / JOURNAL, lambda: journal.read(tmp_path / JOURNAL))
    assert found is not None and len(found.events) == len(STORY)
    assert len(reported) == 1 and codes(reported[0]) == [orchestrators.JOURNAL_UNREADABLE_NOW.code]


@pytest.mark.parametrize("aside, code", [(True, 2), (False, 0)])
def test_one_whose_only_job_is_put_aside_ends_as_if_it_could_not_read_the_journal(aside: bool, code: int) -> None:
    async def scenario() -> None:
        go, ended = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def job() -> int:
            await go.wait()
            return 0

        running = asyncio.create_task(job())
        running.add_done_callback(lambda task: start._over(ended, task))
        await asyncio.sleep(0)
        if aside:
            running.cancel()
        go.set()
        assert await ended == code

    asyncio.run(scenario())

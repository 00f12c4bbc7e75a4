"""The chain of checksums: what was changed is found, where it was changed, and agents know which journal their workers depend on."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, MutableMapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from tests.integration.postgres import needs_postgres, postgres
from tests.journals import version1
from tests.journals.damage import DAMAGES, checkpointed
from tests.message_texts import has
from tests.orchestrator.test_journal import SETTINGS, STORY

from understudy.agent.position import FILE, JournalPosition
from understudy.common.names import JOURNAL
from understudy.core import commands, events
from understudy.core.model import JobSpec, LossCause, Timeouts
from understudy.links.messages import NO_POSITION, ONLY, POSITION, Journalled, decode, encode
from understudy.messages import http_requests, orchestrators, service_jobs
from understudy.messages.base import Message
from understudy.orchestrator import database, journal, migrations, rows
from understudy.orchestrator.agent_link import ASIDE, AgentLink, Close
from understudy.orchestrator.api import create_app
from understudy.orchestrator.chain import Chain, Position
from understudy.orchestrator.jobs import Jobs, ServedJob
from understudy.orchestrator.security import Access
from understudy.orchestrator.settings import Settings

LONG = 60.0
IDENTITY, ANOTHER = "a" * 16, "b" * 16
KNOWN = f"7-0123456789abcdef-{IDENTITY}"


def written(place: Path | str, count: int = 1) -> dict[str, Chain]:
    """A journal with the jobs `job` and `other`, and their chains. Each has its story `count` times."""
    file = journal.Journal(place, pytest.fail)
    file.start()
    spec = SETTINGS.spec
    others = Settings(JobSpec("other", spec.world_size, spec.workers_per_node, spares=1), Timeouts())
    writers = {"job": file.begin(SETTINGS, "asked"), "other": file.begin(others, "asked, too")}
    for number in range(count):
        for writer in writers.values():
            for event in STORY:
                writer.append(float(number), event)
    file.close(LONG)
    if isinstance(place, Path):
        checkpointed(place)
    return {job: writer.chain for job, writer in writers.items()}


def changed(place: Path, *statements: str) -> None:
    with closing(sqlite3.connect(place)) as file, file:
        for statement in statements:
            file.execute(statement)


@pytest.mark.parametrize(
    "statement, message",
    [
        (
            "update events set event = replace(event, '127.0.0.1', '::1') where job = 'job' and number = 1",
            orchestrators.EVENT_DAMAGED,
        ),
        ("update events set now = 0.0000001 where job = 'job' and number = 4", orchestrators.EVENT_DAMAGED),
        ("update events set now = 'never' where job = 'job' and number = 4", orchestrators.EVENT_DAMAGED),
        ("update events set event = x'ff00' where job = 'job' and number = 4", orchestrators.EVENT_DAMAGED),
        ("update events set event = cast(x'22ff22' as text) where job = 'job' and number = 4", orchestrators.EVENT_DAMAGED),
        ("update events set checksum = '0' where job = 'job' and number = 4", orchestrators.EVENT_DAMAGED),
        ("update events set number = 40 where job = 'job' and number = 4", orchestrators.EVENTS_MISSING),
        ("update events set job = 'jab' where job = 'job' and number = 4", orchestrators.EVENTS_MISSING),
        ("update jobs set settings = replace(settings, '2', '3') where job = 'job'", orchestrators.JOB_ROW_DAMAGED),
        ("update jobs set request = 'ask' where job = 'job'", orchestrators.JOB_ROW_DAMAGED),
        ("update jobs set request = x'ff' where job = 'job'", orchestrators.JOB_ROW_DAMAGED),
        ("update jobs set checksum = '1' where job = 'job'", orchestrators.JOB_ROW_DAMAGED),
        ("update jobs set job = cast(x'6aff' as text) where job = 'job'", orchestrators.JOB_ROW_DAMAGED),
        ("delete from jobs where job = 'job'", orchestrators.JOB_ROW_DAMAGED),
    ],
)
def test_a_row_that_was_changed_puts_its_job_aside(tmp_path: Path, statement: str, message: Message) -> None:
    place = tmp_path / JOURNAL
    written(place)
    changed(place, statement)
    aside: dict[str, str] = {}
    assert list(journal.read_all(place, aside=aside)) == ["other"]
    assert has(aside["job"], orchestrators.JOB_UNREADABLE, job="job") and has(aside["job"], message)
    with pytest.raises(journal.Unreadable):
        journal.read(place, "job")


@pytest.mark.parametrize("statement", ["delete from version", "drop table version", "update version set version = 3"])
def test_a_journal_without_its_version_is_damaged_and_is_not_begun_again(tmp_path: Path, statement: str) -> None:
    place = tmp_path / JOURNAL
    chains = written(place)
    changed(place, statement)
    with pytest.raises(journal.Damaged):
        journal.read_all(place)
    reported = threading.Event()
    file = journal.Journal(place, lambda text: reported.set())
    file.start()
    file.begin(SETTINGS).append(1.0, STORY[0])
    assert reported.wait(LONG), "nor is it written"
    file.close(1.0)
    with closing(sqlite3.connect(place)) as left:
        assert left.execute("select count(*) from events where job = 'job'").fetchone() == (chains["job"].last.number,)


def test_rows_that_have_changed_places_are_found(tmp_path: Path) -> None:
    place = tmp_path / JOURNAL
    written(place)
    update = "update events set number = {} where job = 'job' and number = {}"
    changed(place, update.format(-1, 4), update.format(4, 5), update.format(5, -1))
    aside: dict[str, str] = {}
    journal.read_all(place, aside=aside)
    assert has(aside["job"], orchestrators.EVENT_DAMAGED, number=4)


def test_an_older_journal_is_chained_from_its_next_event_on(tmp_path: Path) -> None:
    place = version1(tmp_path / JOURNAL)
    known = journal.read(place, "running")
    assert known is not None
    length = len(known.events)
    assert known.chain.has(Position(length, "f" * 16)), "compared by its number: that event has no checksum"
    assert not known.chain.has(Position(length + 1, "f" * 16))
    for _ in range(2):
        file = journal.Journal(place, lambda text: None)
        file.start()
        writer = file.begin(known.settings, known.request, known.chain)
        writer.append(1795295700.0, events.Notice("w0", 0, "a notice"))
        file.close(LONG)
    again = journal.read(place, "running")
    assert again is not None and again.chain.last == writer.chain.last and again.chain.last.number == length + 2
    assert not again.chain.has(Position(length + 1, "f" * 16))
    changed(place, "update events set now = now + 1 where job = 'running' and number = 3")
    with pytest.raises(journal.Unreadable) as caught:
        journal.read(place, "running")
    assert has(caught.value, orchestrators.EVENT_DAMAGED, number=length + 1), "the first one that has a checksum covers all before it"


def test_a_journal_that_has_gone_on_from_an_older_copy_has_the_number_and_not_the_checksum(tmp_path: Path) -> None:
    place = tmp_path / JOURNAL
    chains = written(place)
    known = chains["job"].last
    changed(place, "delete from events where job = 'job' and number > 5")
    left = journal.read(place, "job")
    assert left is not None and not left.chain.has(known) and left.chain.last.number == 5
    file = journal.Journal(place, pytest.fail)
    file.start()
    writer = file.begin(left.settings, left.request, left.chain)
    for event in STORY:
        writer.append(99.0, event)
    file.close(LONG)
    assert writer.chain.last.number > known.number and not writer.chain.has(known)


def test_a_position_that_is_none() -> None:
    assert Position.read(str(Position(7, "0123456789abcdef"))) == Position(7, "0123456789abcdef")
    assert Position.read(KNOWN) == Position(7, "0123456789abcdef", IDENTITY) and str(Position.read(KNOWN)) == KNOWN
    assert str(Position()) == NO_POSITION and Chain().has(Position())
    for text in (
        None,
        "",
        "7",
        "7-",
        "-7-0123456789abcdef",
        "7-0123456789ABCDEF",
        f"{'9' * 16}-0123456789abcdef",
        "7-0123456789abcdef\n",
        f"{KNOWN}0",
    ):
        assert Position.read(text) is None


def test_an_agent_keeps_its_position_for_the_next_one(tmp_path: Path) -> None:
    first = JournalPosition(tmp_path, lambda: bool(workers))
    workers = ["w0"]
    assert first.header() == {POSITION: NO_POSITION}
    first.report(Journalled("6-0123456789abcdef"))
    assert first.header() == {POSITION: "6-0123456789abcdef"}, "of a job that an earlier version has begun"
    first.report(Journalled(KNOWN))
    for wrong in ("8-\r\nfoo: bar", f"{KNOWN}-{IDENTITY}", "8-0123456789abcdef-0"):
        first.report(Journalled(wrong))
    second = JournalPosition(tmp_path, lambda: bool(workers))
    assert second.header() == {POSITION: NO_POSITION}, "without workers nothing depends on it"
    second.take_up()
    assert first.header() == second.header() == {POSITION: KNOWN}
    (tmp_path / FILE).write_bytes(b"\xff")
    second.take_up()
    assert second.header() == {POSITION: KNOWN}
    workers.clear()
    assert first.header() == second.header() == {POSITION: NO_POSITION}, "nor when they have ended"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def sent(link: AgentLink) -> list[object]:
    found: list[object] = []
    while not link.outbox.empty():
        item = link.outbox.get_nowait()
        found += [item] if isinstance(item, Close) else [decode(line) for line in item.split("\n")]
    return found


async def first_rank(jobs: Jobs, position: str) -> tuple[ServedJob, AgentLink, list[object]]:
    """A job of one rank, whose worker is given it; and what its agent was sent."""
    job = jobs.begin(Settings(JobSpec("job", 1, 1, spares=0), Timeouts()))
    link = job.service.attach(events.NodeJoined("n0", "127.0.0.1", 0), position)
    said = sent(link)
    job.service.submit(events.WorkerStarted("w0", "n0", 1))
    job.service.submit(events.WorkerWarm("w0", "127.0.0.1:1"))
    await until(lambda: not link.outbox.empty())
    return job, link, said + sent(link)


@pytest.mark.parametrize("position", [NO_POSITION, ""])
def test_a_decision_comes_after_the_position_of_its_event(tmp_path: Path, position: str) -> None:
    async def scenario() -> None:
        file = journal.Journal(tmp_path / JOURNAL, pytest.fail)
        file.start()
        job, _, found = await first_rank(Jobs(file, pytest.fail), position)
        file.close(LONG)
        kinds = [type(one) for one in found]
        assert kinds == [commands.StartWorker, *([Journalled] if position else []), commands.Assign], "an earlier version is sent nothing"
        recorded = journal.read(tmp_path / JOURNAL)
        assert recorded is not None and recorded.chain.last.number == 3
        assert not position or found[1] == Journalled(f"{recorded.chain.last}-{recorded.settings.identity}")
        job.running.cancel()

    asyncio.run(scenario())


def test_an_agent_that_knows_more_puts_the_job_aside_and_nothing_is_decided(tmp_path: Path) -> None:
    reported: list[str] = []

    async def scenario() -> None:
        file = journal.Journal(tmp_path / JOURNAL, reported.append)
        file.start()
        jobs = Jobs(file, reported.append)
        job, link, _ = await first_rank(jobs, NO_POSITION)
        last = job.service._journal.chain.last
        agent = events.NodeJoined("n0", "127.0.0.1", 0)
        assert jobs.admit(job, agent, None) and jobs.admit(job, agent, last) and jobs.admit(job, agent, Position())
        further = Position(last.number + 1, last.checksum)
        mistaken = [replace(agent, ranks=2), replace(agent, claim=3)]
        assert all(jobs.admit(job, one, further) for one in mistaken) and not jobs.aside, "it hears that it should not have been started"
        assert not jobs.admit(job, agent, further)
        assert not jobs.admit(job, replace(agent, node="n1"), None), "nor is any other agent let in"
        assert jobs.get("job") is None and has(jobs.aside["job"], orchestrators.JOURNAL_BEHIND, node="n0", number=further.number)
        assert has(reported[-1], service_jobs.JOB_PUT_ASIDE, job="job")
        await asyncio.gather(job.running, return_exceptions=True)
        assert job.running.cancelled()
        (close,) = sent(link)
        assert isinstance(close, Close) and close.code == ASIDE
        job.service.submit(events.WorkerLost("w0", LossCause.KILLED, "", 0.0))
        assert link.outbox.empty()
        file.close(LONG)
        recorded = journal.read(tmp_path / JOURNAL)
        assert recorded is not None and recorded.chain.last == last

    asyncio.run(scenario())


def test_any_damage_is_found_by_reading_or_by_an_agent(tmp_path: Path) -> None:
    """What can be read is what was written, or an agent's position is not in it. Nothing but the errors that callers know comes of it."""
    sound, older, place = tmp_path / "sound.db", tmp_path / "older.db", tmp_path / JOURNAL
    written(older)
    chains = written(sound, 4)
    outcomes = set()
    for number in range(50 * len(DAMAGES)):
        for left in tmp_path.glob(f"{JOURNAL}*"):
            left.unlink()
        shutil.copy(sound, place)
        damage = DAMAGES[number % len(DAMAGES)]
        what = damage(place, older, Random(number))
        aside: dict[str, str] = {}
        try:
            found = journal.read_all(place, aside=aside)
        except (journal.Damaged, migrations.NewerJournal, sa.exc.OperationalError):
            outcomes.add((damage.__name__, "refused"))
            continue
        recorded = found.get("job")
        if recorded is None:
            outcomes.add((damage.__name__, "aside" if "job" in aside else "unknown"))
        elif recorded.chain.last == chains["job"].last:
            outcomes.add((damage.__name__, "whole"))
        else:
            assert not recorded.chain.has(chains["job"].last), what
            outcomes.add((damage.__name__, "behind"))
    assert {("digit", "aside"), ("row", "aside"), ("tail", "behind"), ("old_copy", "behind"), ("mixed", "behind")} <= outcomes
    assert not {("tail", "whole"), ("old_copy", "whole"), ("row", "whole")} & outcomes


WRITER = """
import sys
import threading
from pathlib import Path
from tests.orchestrator.test_journal import SETTINGS, STORY
from understudy.orchestrator import journal

place = Path(sys.argv[1])
known = journal.read(place)
file = journal.Journal(place, print)
file.start()
writer = file.begin(SETTINGS, "asked", known.chain if known is not None else None)
while True:
    for number, event in enumerate(STORY):
        writer.append(1.5, event)
        if number % 3 == 0:
            written = threading.Event()
            writer.mark(written.set)
            written.wait()
        print(writer.chain.last, flush=True)
"""


def test_a_journal_has_what_was_reported_by_a_process_that_was_killed(tmp_path: Path) -> None:
    """Wherever that was. The next one goes on."""
    place = tmp_path / JOURNAL
    reported: list[Position] = []
    for times in range(4):
        command = [sys.executable, "-c", WRITER, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
            assert process.stdout is not None
            printed = "".join(process.stdout.readline() for _ in range(1 + 211 * times))
            process.kill()
            printed += process.stdout.read()
        position = Position.read(printed.split("\n")[-2])
        assert position is not None
        reported.append(position)
        found = journal.read(place)
        assert (found.chain if found is not None else Chain()).has(position)
    assert found is not None and all(found.chain.has(position) for position in reported)
    assert max(position.number for position in reported) > 100


@needs_postgres
def test_a_row_that_was_changed_in_postgres_puts_its_job_aside(tmp_path: Path) -> None:
    with postgres(tmp_path / "database") as server:
        chains = written(server.url)
        known = journal.read_all(server.url)
        assert {job: recorded.chain.last for job, recorded in known.items()} == {job: chain.last for job, chain in chains.items()}
        engine = database.engine(server.url)
        with engine.begin() as connection:
            connection.execute(sa.text("update events set now = now + 0.000001 where job = 'job' and number = 4"))
        engine.dispose()
        aside: dict[str, str] = {}
        assert list(journal.read_all(server.url, aside=aside)) == ["other"]
    assert has(aside["job"], orchestrators.EVENT_DAMAGED, number=4)


def test_the_last_position_is_that_of_the_chain(tmp_path: Path) -> None:
    chains = written(tmp_path / JOURNAL)
    with database.reading(tmp_path / JOURNAL) as connection:
        assert connection is not None
        assert rows.last(connection, "job") == chains["job"].last and rows.last(connection, "none") == Position()


async def knocked(app: FastAPI, position: str) -> tuple[int, str]:
    """An agent with this position connects: the status of the answer and its text, or the code with which it is sent away."""
    hello = encode(events.NodeJoined("n0", "127.0.0.1", 0))
    incoming = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": hello}])
    answers: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return next(incoming, {"type": "websocket.disconnect", "code": 1000})

    async def send(answer: MutableMapping[str, Any]) -> None:
        answers.append(answer)

    headers = [(b"authorization", b"Bearer secret"), (POSITION.encode(), position.encode())]
    scope = {"type": "websocket", "path": f"/v1/jobs/{ONLY}/agent", "headers": headers, "query_string": b"", "client": ("192.0.2.7", 1)}
    await app({**scope, "subprotocols": [], "extensions": {"websocket.http.response": {}}, "state": {}}, receive, send)
    text = b"".join(answer.get("body", b"") for answer in answers).decode()
    return next((int(answer.get("status", 0) or answer.get("code", 0)) for answer in answers if {"status", "code"} & set(answer)), 0), text


def test_an_agent_of_an_earlier_job_is_refused_alone(tmp_path: Path) -> None:
    """Its command was not ended, and looks for its orchestrator at the same address with the same secret."""
    reported: list[str] = []

    async def scenario() -> None:
        jobs = Jobs(journal.Journal(tmp_path / JOURNAL, reported.append), reported.append)
        jobs.single = True
        job = jobs.begin(Settings(JobSpec("job", 1, 1, spares=0), Timeouts(), identity=IDENTITY))
        app = create_app(jobs, Access(["secret"]), None)
        further = f"40-0123456789abcdef-{ANOTHER}"
        for _ in range(2):
            status, text = await knocked(app, further)
            assert status == 503 and has(json.loads(text)["detail"], http_requests.OF_ANOTHER_JOB, host="192.0.2.7")
        assert len(reported) == 1 and jobs.get(ONLY) is job and not jobs.aside and not job.service.machine.state.nodes
        assert (await knocked(app, NO_POSITION)) == (0, "") and "n0" in job.service.machine.state.nodes
        code, _ = await knocked(app, KNOWN)
        assert code == ASIDE and "job" in jobs.aside, "its own agents know more"
        await asyncio.gather(job.running, return_exceptions=True)

    asyncio.run(scenario())


def test_where_a_version_knows_no_identity_the_chain_alone_is_compared(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = journal.Journal(tmp_path / JOURNAL, pytest.fail)
        own, older = Jobs(file, pytest.fail), Jobs(file, pytest.fail)
        job = own.begin(SETTINGS)
        assert len(job.service._journal.identity) == 16 and own.begin(SETTINGS).service._journal.identity != job.service._journal.identity
        assert not job.service.is_of_another(Position(7, "0" * 16)) and job.service.is_of_another(Position(7, "0" * 16, ANOTHER))
        known = rows.Recorded(SETTINGS, "", [], {})
        before = older.begin(SETTINGS, known=known)
        assert before.service._journal.identity == "" and not before.service.is_of_another(Position(7, "0" * 16, ANOTHER))
        for one in (*own.all(), *older.all(), job):
            one.running.cancel()

    asyncio.run(scenario())
    assert Settings.from_json(SETTINGS.identified().to_json()).identity and not Settings.from_json(SETTINGS.to_json()).identity
    with pytest.raises(ValueError, match=orchestrators.SETTINGS_REFUSED.code):
        Settings.from_json(replace(SETTINGS, identity="-").to_json())


def test_an_index_that_does_not_fit_its_table_is_found_by_the_chain(tmp_path: Path) -> None:
    """A start of the orchestrator does not compare them; `understudy journal verify` does."""
    place = tmp_path / JOURNAL
    written(place)
    with closing(sqlite3.connect(place)) as file:
        event = file.execute("select * from events where job = 'job' and number = 4").fetchone()
        (index,) = file.execute("select * from sqlite_master where name = 'ix_events_job_number'").fetchall()
        file.execute("delete from events where job = 'job' and number = 4")
        file.execute("pragma writable_schema = on")
        file.execute("delete from sqlite_master where name = 'ix_events_job_number'")
        file.commit()
    with closing(sqlite3.connect(place)) as file:
        file.execute(f"insert into events values ({', '.join('?' * len(event))})", event)
        file.execute("pragma writable_schema = on")
        file.execute("insert into sqlite_master values (?, ?, ?, ?, ?)", index)
        file.commit()
    aside: dict[str, str] = {}
    assert list(journal.read_all(place, aside=aside)) == ["other"] and has(aside["job"], orchestrators.EVENTS_MISSING, number=4)
    with pytest.raises(journal.Damaged):
        journal.read_all(place, check=database.THOROUGH)


@pytest.mark.parametrize("old", [b"CREATE TABLE events", b"eventsevents"])
def test_a_schema_that_is_not_text_is_damage(tmp_path: Path, old: bytes) -> None:
    """SQLite's message about it cannot be decoded."""
    place = tmp_path / JOURNAL
    written(place)
    checkpointed(place)
    data = place.read_bytes()
    assert old in data
    for bytes_ in (b"\xf5", b"\xf5" * len(old)):
        place.write_bytes(data.replace(old, bytes_ + old[len(bytes_) :]))
        with pytest.raises(journal.Damaged):
            journal.read_all(place)


def test_a_file_is_checked_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / JOURNAL
    written(place)
    checks: list[str] = []
    run = sa.Connection.exec_driver_sql

    def recorded(connection: sa.Connection, statement: str, *parameters: Any) -> Any:
        checks.extend([statement] if "_check" in statement else [])
        return run(connection, statement, *parameters)

    monkeypatch.setattr(sa.Connection, "exec_driver_sql", recorded)
    journal.read_all(place)
    journal.read_all(place)
    assert checks == [f"PRAGMA {database.QUICK}"]
    place.write_bytes(place.read_bytes()[:-4096])
    with pytest.raises(journal.Damaged):
        journal.read_all(place)

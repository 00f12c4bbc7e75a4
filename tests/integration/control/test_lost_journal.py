"""A journal that is lost or damaged while a job trains: its workers train on, a message has the remedy, and that works."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.integration.processes import is_alive, marked, pid_of, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.training import LONG, Outcome
from tests.message_texts import has

from understudy.messages import http_requests, journals, orchestrators, service_jobs
from understudy.messages.base import Message

PATIENT = ["--hang-limit", "900"]  # a node without an orchestrator ends workers that make no progress, and these make none
RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "0"]
HELD = 6


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        yield Service(tmp_path, mark)


def trains(service: Service, *, started: bool = False, kill: bool = True) -> tuple[Submitted, list[int]]:
    """Start a job on two nodes, pause one rank, and return the pids of its ranks. Its orchestrator is killed."""
    if not started:
        service.start_nodes("ab", 2)
    job = service.run("job", [*RANKS, *PATIENT], "spread.py", HELD=f"1:{HELD}")
    job.wait_for(f"held {HELD}")
    pids = [pid_of(lambda: job.status()["ranks"][0]), pid_of(lambda: job.status()["ranks"][1])]
    if kill:
        service.kill_orchestrator()
    return job, pids


def backed_up(service: Service, jobs: int = 1) -> Path:
    copy = service.folder / "copy.db"
    done = service.command("journal", "backup", str(service.state), str(copy))
    assert done.returncode == 0 and has(done.stderr, journals.COPIED, jobs=jobs, damaged=0), done.stderr
    return copy


def restore(service: Service, copy: Path) -> None:
    done = service.command("journal", "restore", str(service.state), str(copy))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", ["gone", "empty"])
def test_a_job_that_the_journal_does_not_know_trains_on_and_can_be_ended(service: Service, what: str) -> None:
    job, pids = trains(service)
    for file in service.state.glob("journal.db*"):
        file.unlink()
    if what == "empty":
        (service.state / "journal.db").touch()
    service.start_orchestrator()
    service.wait_for_nodes(2)
    wait_until(lambda: service.get("jobs"), "its parts have come", LONG)
    (line,) = service.ask("jobs")
    assert line["job"] == "job" and line["state"] == "aside" and has(line["message"], service_jobs.ORPHANED)
    assert has(service.command("status", "--job", "job").stderr, http_requests.JOB_ASIDE, job="job")
    assert all(map(is_alive, pids))
    other = service.run("other", ["--spares", "0"], "spread.py").ends()
    assert other.code == 0, other.output
    assert all(map(is_alive, pids))
    assert service.command("cancel", "job").returncode == 0
    for pid in pids:
        wait_for_end(pid)
    wait_until(lambda: "job" not in [one["job"] for one in service.ask("jobs")], "nothing is left of it", LONG)
    assert httpx.get(f"{service.url}/v1/health").json()["status"] == "ok"
    job.process.terminate()
    job.process.wait(LONG)


def checkpointed(file: Path) -> None:
    """Everything is in this file, and nothing in the one of the write-ahead log, from which it would be read."""
    with closing(sqlite3.connect(file)) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def garbage(file: Path) -> None:
    checkpointed(file)
    file.write_bytes(b"no database" * 10_000)


def zeroed_page(file: Path) -> None:
    checkpointed(file)
    with closing(sqlite3.connect(file)) as journal:
        ((page,),) = journal.execute("select rootpage from sqlite_master where name = 'events'")
        ((size,),) = journal.execute("PRAGMA page_size")
    data = bytearray(file.read_bytes())
    data[(page - 1) * size : page * size] = bytes(size)
    file.write_bytes(data)


def truncated(file: Path) -> None:
    checkpointed(file)
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2)


@pytest.mark.parametrize("damage", [garbage, zeroed_page, truncated])
def test_a_damaged_file_is_named_and_restored(
    service: Service, undisturbed_spread: Callable[[int], Outcome], damage: Callable[[Path], None]
) -> None:
    job, pids = trains(service)
    copy = backed_up(service)
    damage(service.state / "journal.db")
    verified = service.command("journal", "verify", str(service.state))
    assert verified.returncode == 1 and has(verified.stderr, orchestrators.JOURNAL_DAMAGED), verified.stderr
    (service.state / "orchestrator.json").unlink()
    refused = service.command("orchestrator", "--state-dir", str(service.state), "--listen", "127.0.0.1:0")
    assert refused.returncode == 2 and has(refused.stderr, orchestrators.JOURNAL_DAMAGED), refused.stderr
    assert all(map(is_alive, pids))
    restore(service, copy)
    goes_on(service, job, undisturbed_spread(2))


def test_missing_rows_put_the_job_aside(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job, pids = trains(service)
    copy = backed_up(service)
    with closing(sqlite3.connect(service.state / "journal.db")) as journal, journal:
        journal.execute("delete from events where number between 7 and 9")
    service.start_orchestrator()
    service.wait_for_nodes(2)
    (line,) = service.ask("jobs")
    assert line["state"] == "aside" and has(line["message"], orchestrators.EVENTS_MISSING, number=7)
    assert all(map(is_alive, pids))
    refused = service.command("journal", "restore", str(service.state), str(copy))
    assert refused.returncode == 2 and has(refused.stderr, journals.IN_USE), refused.stderr
    service.kill_orchestrator()
    restore(service, copy)
    goes_on(service, job, undisturbed_spread(2))


def is_put_aside(service: Service, message: Message, **wanted: object) -> None:
    """The job, and it alone, by both nodes' agents or before they came; and the journal is not written for it."""

    def aside() -> bool:
        lines = {line["job"]: line for line in service.ask("jobs")}
        return lines["job"]["state"] == "aside" and has(lines["job"]["message"], message, **wanted)

    service.wait_for_nodes(2)
    wait_until(aside, "the job is put aside", LONG)


def last_number(service: Service) -> int:
    with closing(sqlite3.connect(service.state / "journal.db")) as journal:
        ((number,),) = journal.execute("select max(number) from events where job = 'job'")
    return int(number)


def known_to_agents(service: Service, number: int) -> None:
    """Both nodes' agents know of this event."""

    def known() -> bool:
        found = [folder / "journal-position" for folder in service.folder.glob("agent-?/parts/job")]
        return len(found) == 2 and all(file.exists() and int(file.read_text().partition("-")[0]) >= number for file in found)

    wait_until(known, f"agents know of event {number}", LONG)


CHANGED = {
    "event": "update events set event = replace(event, '1', '2') where job = 'job' and number = 1",
    "time": "update events set now = now + 0.001 where job = 'job' and number = 5",
    "checksum": "update events set checksum = '00' || substr(checksum, 3) where job = 'job' and number = 6",
    "settings": "update jobs set settings = replace(settings, '\"spares\": 0', '\"spares\": 1') where job = 'job'",
    "name": "update jobs set job = 'jab' where job = 'job'",
}


@pytest.mark.parametrize("row", CHANGED)
def test_one_digit_that_was_changed_puts_its_job_aside(service: Service, undisturbed_spread: Callable[[int], Outcome], row: str) -> None:
    other = service.run("other", ["--spares", "0"], "spread.py")
    service.start_nodes("ab", 2)
    assert other.ends().code == 0
    job, pids = trains(service, started=True)
    copy = backed_up(service, jobs=2)
    with closing(sqlite3.connect(service.state / "journal.db")) as journal, journal:
        assert journal.execute(CHANGED[row]).rowcount == 1
    verified = service.command("journal", "verify", str(service.state))
    message = orchestrators.EVENT_DAMAGED if row in ("event", "time", "checksum") else orchestrators.JOB_ROW_DAMAGED
    assert verified.returncode == 1 and has(verified.stdout, message) and "other: " in verified.stdout, verified.stdout
    service.start_orchestrator()
    is_put_aside(service, message)
    assert {line["job"] for line in service.ask("jobs") if line["state"] == "finished"} == {"other"}
    assert all(map(is_alive, pids))
    service.kill_orchestrator()
    restore(service, copy)
    goes_on(service, job, undisturbed_spread(2))


@pytest.mark.parametrize("missing", [1, 4])
def test_rows_missing_at_the_end_put_the_job_aside(service: Service, undisturbed_spread: Callable[[int], Outcome], missing: int) -> None:
    """The journal alone does not show it; the agents know more."""
    job, pids = trains(service, kill=False)
    known_to_agents(service, last_number(service))
    service.kill_orchestrator()
    copy = backed_up(service)
    last = last_number(service)
    with closing(sqlite3.connect(service.state / "journal.db")) as journal, journal:
        journal.execute("delete from events where job = 'job' and number > ?", (last - missing,))
    assert service.command("journal", "verify", str(service.state)).returncode == 0
    service.start_orchestrator()
    is_put_aside(service, orchestrators.JOURNAL_BEHIND, number=last)
    assert all(map(is_alive, pids)) and last_number(service) == last - missing
    for name in "ab":  # an agent that is started again knows it as well
        service.restart_agent(name)
    service.kill_orchestrator()
    service.start_orchestrator()
    is_put_aside(service, orchestrators.JOURNAL_BEHIND, number=last)
    assert all(map(is_alive, pids))
    service.kill_orchestrator()
    restore(service, copy)
    goes_on(service, job, undisturbed_spread(2))


def test_an_older_copy_puts_jobs_aside_that_have_changed_since_and_knows_none_that_are_newer(service: Service) -> None:
    """A rank was replaced after the copy was made, and another job was submitted. Neither is ended, and both can be."""
    service.start_nodes("ab", 3)
    job = service.held("job", spares=1)
    copy = backed_up(service)
    job.kill_rank(1)
    job.wait_until(lambda status: status["generation"] == 1 and status["state"] == "training", "the recovery")
    later = service.run("later", ["--spares", "0", *PATIENT], "spread.py", WAIT="1")
    later.wait_for_state("training")
    pids = [pid_of(lambda: job.status()["ranks"][0]), pid_of(lambda: job.status()["ranks"][1]), pid_of(lambda: later.status()["ranks"][0])]
    known_to_agents(service, last_number(service))
    service.kill_orchestrator()
    restore(service, copy)
    service.start_orchestrator()
    is_put_aside(service, orchestrators.JOURNAL_BEHIND)
    (line,) = [line for line in service.ask("jobs") if line["job"] == "later"]
    assert line["state"] == "aside" and has(line["message"], service_jobs.ORPHANED)
    assert all(map(is_alive, pids))
    for name in ("job", "later"):
        assert service.command("cancel", name).returncode == 0
    for pid in pids:
        wait_for_end(pid)
    for one in (job, later):
        one.process.terminate()
        one.process.wait(LONG)
    shutil.rmtree(service.state / "before-restore-1")


def goes_on(service: Service, job: Submitted, undisturbed: Outcome) -> None:
    """Wait for its end, with the same bits and without an incident. (Commands that followed it may have reported that it was put aside.)"""
    service.start_orchestrator()
    service.wait_for_nodes(2)
    job.let("let go")
    wait_until(lambda: job.status()["state"] == "finished", "the job's end", LONG)
    job.process.wait(LONG)
    assert job.status()["exit_code"] == 0 and job.status()["incidents"] == 0
    outcome = Outcome(0, "", job.folder)
    assert outcome.record == undisturbed.record
    shutil.rmtree(service.state / "before-restore-1")  # every journal of the tests is read at their end

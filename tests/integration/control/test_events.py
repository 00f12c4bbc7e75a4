"""A job's events over HTTP and on the command line: all of them, once and in order, through restarts and for slow readers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.control.test_orchestrator import LONG, SPEC, Orchestrator, wait_for
from tests.integration.processes import marked
from tests.integration.service import TOKEN, Service
from tests.integration.training import understudy

from understudy.cli.events_command import frames
from understudy.common.names import JOURNAL
from understudy.core import events
from understudy.core.model import LossCause
from understudy.orchestrator import journal, views

PATH = "/v1/jobs/job/events"


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[Orchestrator]:
    (tmp_path / "job.json").write_text('{"spec": {}, "program": [], "started": 1}')  # what `understudy events` looks for
    made = Orchestrator(tmp_path, SPEC)
    yield made
    made.close()


def events_of(text: str) -> list[dict[str, Any]]:
    """Of a whole answer; every frame is checked."""
    found = []
    for frame in text.split("\n\n")[:-1]:
        if frame.startswith(":"):
            continue
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        data = json.loads(fields.pop("data"))
        assert fields == ({"event": "end"} if "number" not in data else {"id": str(data["number"]), "event": data["type"]})
        found.append(data)
    return found


def following(orchestrator: Orchestrator, client: httpx.Client, after: int) -> Generator[dict[str, Any], None, None]:
    """The events after this one, as a browser asks for them when it has had a part. Ends in an error if the orchestrator does."""
    headers = {"Authorization": f"Bearer {orchestrator.token}", "Last-Event-ID": str(after)}
    with client.stream("GET", f"{orchestrator.url}{PATH}?follow=true", headers=headers, timeout=LONG) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        yield from frames(answer.iter_raw())


def test_events_as_the_journal_has_them(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    agent.lose()
    answer = orchestrator.ask("GET", "/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    all_, ended = views.offline_events(orchestrator.run_dir)
    assert events_of(answer.text) == all_ and not ended
    assert [event["number"] for event in all_] == list(range(1, len(all_) + 1))
    assert all_[0]["type"] == "NodeJoined" and {"WorkerStarted", "Committed", "WorkerLost"} <= {event["type"] for event in all_}
    assert events_of(orchestrator.ask("GET", "/events?after=5").text) == all_[5:]
    assert orchestrator.ask("GET", f"/events?after={len(all_)}").text == ""
    headers = {"Authorization": f"Bearer {orchestrator.token}", "Last-Event-ID": "7"}
    assert events_of(httpx.get(f"{orchestrator.url}/v1/jobs/-/events?after=5", headers=headers).text) == all_[7:]
    assert orchestrator.token not in answer.text
    assert orchestrator.ask("GET", "/events", token="wrong").status_code == 401
    for wrong in ("?after=-1", "?after=x", f"?after={1 << 31}", "?follow=perhaps"):
        assert orchestrator.ask("GET", f"/events{wrong}").status_code == 422
    assert httpx.get(f"{orchestrator.url}{PATH}", headers={**headers, "Last-Event-ID": "w3"}).status_code == 422


def test_a_follower_goes_on_after_a_restart_until_the_end(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    got = []
    with httpx.Client() as client:
        with pytest.raises(httpx.TransportError):
            for event in following(orchestrator, client, 0):
                got.append(event)
                if event["type"] == "Committed" and event["worker"] == "w1":
                    agent.say(events.Notice("w0", 0, "seen as it comes"))
                if event["type"] == "Notice":
                    orchestrator.process.kill()
        orchestrator.process.communicate()
        orchestrator.start()
        agent = orchestrator.agent()
        for event in following(orchestrator, client, got[-1]["number"]):
            got.append(event)
            if event.get("type") == "NodeJoined":
                agent.say(events.Notice("w0", 0, "from another life"))
            if event.get("type") == "Notice":
                assert orchestrator.ask("POST", "/stop", {"reason": "enough", "exit_code": 4}).status_code == 200
            if event.get("type") == "StopAsked":
                agent.socket.close()
    assert orchestrator.end()[0] == 0
    assert got.pop() == {"exit_code": 4}
    assert (got, True) == views.offline_events(orchestrator.run_dir)
    assert [event["text"] for event in got if event["type"] == "Notice"] == ["seen as it comes", "from another life"]


def test_a_reader_that_does_not_read_misses_nothing_and_delays_no_rank(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    host, port = orchestrator.url.removeprefix("http://").split(":")
    with socket.socket() as slow, httpx.Client() as client:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        slow.connect((host, int(port)))
        request = f"GET {PATH}?follow=true HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {orchestrator.token}\r\n\r\n"
        slow.sendall(request.encode())
        assert slow.recv(5) == b"HTTP/"
        count = 8000  # of a kilobyte each: more than sockets buffer, and than is kept in memory
        for number in range(count):
            agent.say(events.PhaseDone("w0", 0, f"{number} {'x' * 1000}", 1.0, 1.0))
        fast = following(orchestrator, client, 0)
        seen = islice((event for event in fast if event["type"] == "PhaseDone"), count)
        assert [int(event["phase"].split()[0]) for event in seen] == list(range(count))
        fast.close()
        assert orchestrator.ask("POST", "/stop", {"exit_code": 3}).status_code == 200
        with slow.makefile("rb") as stream:
            got = list(frames(iter(lambda: stream.read1(1 << 16), b"")))
    agent.socket.close()
    code, said = orchestrator.end()
    assert code == 0 and "Traceback" not in said, "readers that went away are nothing to speak of"
    assert got.pop() == {"exit_code": 3}
    assert [event["number"] for event in got] == list(range(1, len(got) + 1))
    assert sum(event["type"] == "PhaseDone" for event in got) == count


def test_the_command_follows_through_a_restart_and_reads_the_journal_afterwards(orchestrator: Orchestrator) -> None:
    words = [sys.executable, "-m", "understudy.cli", "events", "--run-dir", str(orchestrator.run_dir), "--follow", "--json"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    try:
        agent = orchestrator.agent()
        agent.begin()
        got = []
        for line in command.stdout:
            got.append(json.loads(line))
            if got[-1]["type"] == "Committed" and got[-1]["worker"] == "w1":
                break
        orchestrator.process.kill()
        orchestrator.process.communicate()
        orchestrator.start()
        agent = orchestrator.agent()
        agent.say(events.WorkerLost("w1", LossCause.KILLED, "signal 9", 1.0))
        wait_for(orchestrator, state="recovering")
        assert orchestrator.ask("POST", "/stop", {"reason": "enough", "exit_code": 4}).status_code == 200
        agent.socket.close()
        got += map(json.loads, command.stdout)
        assert command.wait(LONG) == 0
    finally:
        command.kill()
        command.communicate()
    assert orchestrator.end()[0] == 0
    assert (got, True) == views.offline_events(orchestrator.run_dir)

    after = understudy("events", "--run-dir", str(orchestrator.run_dir), "--follow")
    assert after.returncode == 0
    lines = after.stdout.splitlines()
    assert len(lines) == len(got)
    (lost,) = [line for line in lines if "WorkerLost" in line]
    assert "rank 1 w1 on n0: cause killed, detail signal 9, " in lost
    last = understudy("events", "--run-dir", str(orchestrator.run_dir), "--json", "--after", str(len(got) - 1))
    assert json.loads(last.stdout) == got[-1]


def test_events_of_jobs_of_a_service(tmp_path: Path) -> None:
    with marked() as mark:
        service = Service(tmp_path, mark)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        secret = {"API_KEY": "a key that no one may read"}
        for name in ("first", "second"):
            body = {"name": name, "program": ["t.py"], "folder": "/", "environment": secret}
            assert httpx.post(f"{service.url}/v1/jobs", json=body, headers=headers).status_code == 201
            assert httpx.get(f"{service.url}/v1/jobs/{name}/events", headers=headers).text == "", "nothing has happened yet"
        assert service.command("cancel", "first", "--reason", "not needed").returncode == 0
        done = service.command("events", "--follow", "--job", "first")
        assert done.returncode == 0 and done.stdout.endswith("StopAsked            : reason not needed, exit code 143\n")
        before = httpx.get(f"{service.url}/v1/jobs/first/events?follow=true", headers=headers).text
        assert [event.get("type") for event in events_of(before)] == ["StopAsked", None]
        service.kill_orchestrator()
        service.start_orchestrator()
        assert httpx.get(f"{service.url}/v1/jobs/first/events?follow=true", headers=headers).text == before
        assert httpx.get(f"{service.url}/v1/jobs/first/events", headers=headers).text == before
        assert service.command("events", "--job", "second", "--json").stdout == ""
        assert secret["API_KEY"] not in before and TOKEN not in before
        assert service.command("events", "--job", "third").returncode == 1
        recorded = journal.read(service.state / JOURNAL, "first")
        assert recorded is not None and len(recorded.events) == 1

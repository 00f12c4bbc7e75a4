"""The HTTP interface keeps to its description, whatever is sent; and nothing malformed, foreign or stale gets through the WebSockets."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.integration.processes import marked, wait_until
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG
from tests.message_texts import has
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from understudy.core import events
from understudy.links.messages import LIMIT, Hello, Lines, Pages, PartEnded, encode
from understudy.messages import http_requests, service_jobs
from understudy.messages.base import code_of

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with marked() as mark:
        yield Service(tmp_path_factory.mktemp("service"), mark)


def test_every_answer_is_as_described(service: Service) -> None:
    """Requests made from the description, with values that fit it and values that do not."""
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) >= 10
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try_out(operation.as_strategy(generation_mode=mode))


def try_out(cases: Any) -> None:
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(cases)
    def works(case: Any) -> None:
        # That timeouts must be in an order is not in the description, which has no words for it.
        unsaid = [positive_data_acceptance] if case.method == "POST" and case.path == "/v1/jobs" else []
        case.call_and_validate(headers=HEADERS, timeout=LONG, excluded_checks=unsaid)

    with suppress(Unsatisfiable):  # a request without a body and parameters cannot be wrong
        works()


@pytest.mark.gate
def test_errors_are_problem_details(service: Service) -> None:
    job = {"name": "a", "program": ["x"], "folder": "/"}
    for method, path, body, status, message, words in (
        ("GET", "/v1/jobs/nobody/status", None, 404, http_requests.NO_SUCH_JOB, "'nobody'"),
        ("GET", "/v2/jobs", None, 404, http_requests.NOT_SERVED, "Not Found"),
        ("DELETE", "/v1/jobs", None, 405, http_requests.NOT_SERVED, "Method Not Allowed"),
        ("POST", "/v1/jobs", {"name": "../etc", "program": ["x"], "folder": "/"}, 422, http_requests.MALFORMED, "body.name: "),
        ("POST", "/v1/jobs", {"name": "a", "program": [], "folder": "/"}, 422, http_requests.MALFORMED, "body.program: "),
        (
            "POST",
            "/v1/jobs",
            {**job, "timeouts": {"heartbeat": 3.0}},
            422,
            http_requests.MALFORMED,
            "(3.0)",
        ),
    ):
        answer = httpx.request(method, service.url + path, json=body, headers=HEADERS)
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.status_code, problem["status"]) == (status, status)
        assert problem["code"] == message.code == code_of(problem["detail"]) and words in problem["detail"]
    answer = httpx.get(f"{service.url}/v1/jobs")
    assert answer.status_code == 401 and answer.json()["detail"] == http_requests.TOKEN_NEEDED()
    assert httpx.get(f"{service.url}/v1/health").json()["status"] == "ok"


def test_metrics(service: Service) -> None:
    submit(service, "measured")
    text = httpx.get(f"{service.url}/metrics", headers=HEADERS).text
    assert 'understudy_job_step{job_name="measured"} 0.0' in text
    assert 'understudy_job_state{job_name="measured",state="waiting"} 1.0' in text
    assert "understudy_journal_waiting" in text
    assert httpx.get(f"{service.url}/metrics").status_code == 401


def submit(service: Service, name: str) -> None:
    body = {"name": name, "program": ["train.py"], "folder": "/", "nodes": 1, "spares": 0}
    assert httpx.post(f"{service.url}/v1/jobs", json=body, headers=HEADERS).status_code == 201


def _open(service: Service, path: str, token: str) -> ClientConnection:
    return connect(
        service.url.replace("http", "ws") + path, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None, max_size=None
    )


def test_an_agent_that_does_not_introduce_itself_is_disconnected(service: Service) -> None:
    for token in ("", "wrong", TOKEN[:-1]):
        with pytest.raises(InvalidStatus):
            _open(service, "/v1/agent", token)
    with pytest.raises(InvalidStatus):
        _open(service, "/v1/jobs/nobody/agent", TOKEN)
    for first in ("", "{}", encode(Lines("x")), encode(PartEnded("closed", 0)), "[" * 10_000):
        with _open(service, "/v1/agent", TOKEN) as socket:
            socket.send(first)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(LONG)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


def test_junk_of_an_agent_changes_nothing(service: Service) -> None:
    """Malformed, oversized, other nodes', unknown jobs': the connection stays, or is closed, and the service serves on."""
    submit(service, "untouched")
    about = f"{service.url}/v1/jobs/untouched/status"  # at first it waits for nodes that were there before the orchestrator was started
    wait_until(lambda: has(httpx.get(about, headers=HEADERS).json()["message"], service_jobs.WAITS_FOR_SLOTS), "the job waits", LONG)
    before = httpx.get(f"{service.url}/v1/jobs/untouched/status", headers=HEADERS).json()
    hello = Hello("junk", "127.0.0.1", 0, "", {}, ())
    chance = random.Random(11)
    good = [
        encode(hello),
        encode(Pages("junk", 1.0, {})),
        encode(Lines("text")),
        encode(PartEnded("untouched", 1)),
        encode(events.NodeJoined("junk", "127.0.0.1", 0)),
        encode(events.Committed("w0", 7, 7, 7)),
        encode(events.StopAsked("junk", 1)),
        encode(Hello("another", "127.0.0.1", 1_000, "", {}, ())),
    ]
    with _open(service, "/v1/agent", TOKEN) as socket:
        socket.send(encode(hello))
        for _ in range(400):
            text = chance.choice(good)
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(text))
                text = text[:at] + chance.choice(["", "\0", "[", '"', "9" * 30, "é"]) + text[at + chance.randrange(3) :]
            socket.send(text)
        socket.send(b"\xff\xfe binary")
        socket.send(json.dumps({"type": "Hello", "node": "junk", "slots": "many"}))
        socket.send(encode(hello))
        wait_until(lambda: any(node["node"] == "junk" for node in service.ask("nodes")), "it is still served", LONG)
    with _open(service, "/v1/agent", TOKEN) as socket:
        socket.send(encode(hello))
        with pytest.raises(ConnectionClosed) as closed:
            socket.send("x" * (LIMIT + 1))
            while True:
                socket.recv(LONG)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009, "too big"
    assert [node["node"] for node in service.ask("nodes")] == ["junk"]
    assert httpx.get(f"{service.url}/v1/jobs/untouched/status", headers=HEADERS).json() == before
    assert service.orchestrator.poll() is None


def test_no_secret_is_written_down(service: Service) -> None:
    """Neither the token nor the environment of a job reaches the journal, the log or a file that others can read."""
    body = {"name": "secretive", "program": ["t.py"], "folder": "/", "environment": {"API_KEY": "a key that no one may read"}}
    assert httpx.post(f"{service.url}/v1/jobs", json=body, headers=HEADERS).status_code == 201
    service.orchestrator.send_signal(signal.SIGTERM)
    assert service.orchestrator.wait(LONG) == 0
    for path in (p for p in service.folder.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if TOKEN.encode() in data or b"a key that no one may read" in data:
            assert (path.name, path.stat().st_mode & 0o777) == ("environment.json", 0o600)
    service.start_orchestrator()
    assert (service.state / "jobs" / "secretive").is_dir()

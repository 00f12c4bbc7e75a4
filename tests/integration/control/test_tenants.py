"""One tenant against another in a service: a node speaks for itself, and an operator for the own job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.processes import is_alive, marked, pid_of
from tests.integration.service import TOKEN, Service
from tests.integration.training import LONG
from tests.message_texts import has
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from understudy.core.events import NodeJoined, WorkerLost
from understudy.core.model import LossCause
from understudy.links.messages import MOST_SLOTS, Hello, Message, Part, PartEnded, StartPart, decode, encode
from understudy.messages import agents, http_requests, service_jobs, wire
from understudy.orchestrator.security import Access, Role

ACCESS = Access([TOKEN])
ALONE = ["--spares", "0", "--hang-limit", "900", "--drill", "off"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        yield Service(tmp_path, mark)


class Hostile:
    """A program that speaks as an agent does, with a token that is good."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def says(self, *messages: Message) -> None:
        for message in messages:
            self._socket.send(encode(message))

    def stays(self, hello: Hello) -> None:
        """It repeats this, as an agent does, until the connection is closed."""
        threading.Thread(target=self._beat, args=(encode(hello),), daemon=True).start()

    def _beat(self, text: str) -> None:
        with suppress(ConnectionClosed):
            while True:
                self._socket.send(text)
                threading.Event().wait(0.5)

    def hears(self) -> Message:
        return decode(self._socket.recv(LONG))

    def is_sent_away(self, code: int = 1008) -> str:
        with pytest.raises(ConnectionClosedError) as caught:
            self._socket.recv(LONG)
        assert caught.value.rcvd is not None and caught.value.rcvd.code == code
        return caught.value.rcvd.reason


@pytest.fixture
def hostile(service: Service) -> Iterator[Callable[[str, str], Hostile]]:
    with ExitStack() as stack:

        def connected(path: str, token: str) -> Hostile:
            url, header = service.url.replace("http", "ws") + path, {"Authorization": f"Bearer {token}"}
            return Hostile(stack.enter_context(connect(url, additional_headers=header, proxy=None)))

        yield connected


def agent_token(node: str) -> str:
    return ACCESS.token(Role.AGENT, node=node)


def test_a_node_speaks_for_itself_only(service: Service, hostile: Callable[[str, str], Hostile], tmp_path: Path) -> None:
    """It cannot take another node's place, end another's part, or get the settings of a job of others."""
    (tmp_path / "token").write_text(agent_token("a"))
    service.start_agent("a", 1, None, "--token-file", str(tmp_path / "token"))
    service.wait_for_nodes(1)
    victim = service.run("victim", ALONE, "spread.py", WAIT="1", PASSWORD="the victim's")
    victim.wait_for_state("training")
    rank = victim.status()["ranks"][0]

    impostor = hostile("/v1/agent", agent_token("b"))
    impostor.says(Hello("a", "10.0.0.9", 8, "", {}, (Part("victim", 0, 1, 0),)))
    assert impostor.is_sent_away().startswith(http_requests.ANOTHER_NODE.code)

    liar = hostile("/v1/agent", agent_token("b"))
    claimed = (Part("victim", 0, 1, 0), Part("planned", 0, 1, 0))
    liar.says(Hello("b", "10.0.0.9", 1, "", {}, claimed), PartEnded("victim", 1))
    liar.stays(Hello("b", "10.0.0.9", 1, "", {}, ()))
    service.wait_for_words("orchestrator.txt", service_jobs.NOT_ITS_PART(node="b", job="victim"))
    assert {line["node"]: line["jobs"] for line in service.ask("nodes")} == {"a": ["victim"], "b": []}
    own = service.run("planned", [*ALONE, "--detach"], "spread.py")  # a name that is free although a node has claimed it
    assert own.process.wait(LONG) == 0, own.output
    given = liar.hears()
    assert isinstance(given, StartPart) and given.part.job == "planned" and "PASSWORD" not in given.environment

    other = hostile("/v1/jobs/planned/agent", given.token)
    other.says(NodeJoined("a", "10.0.0.9", 0))
    assert other.is_sent_away().startswith(http_requests.ANOTHER_NODE.code)
    part = hostile("/v1/jobs/planned/agent", given.token)
    part.says(NodeJoined("b", "10.0.0.9", 0), WorkerLost("w0", LossCause.KILLED, "said by b", 0.0))
    own.wait_until(lambda status: [node["node"] for node in service.get("topology", job="planned")["nodes"]] == ["b"], "its own part")

    status = victim.status()
    assert status["state"] == "training" and status["ranks"][0]["pid"] == rank["pid"] and is_alive(pid_of(lambda: rank))
    victim.let("end")
    ended = victim.ends()
    assert ended.code == 0 and ended.incidents == [], ended.output


def test_an_agent_whose_token_names_no_node_learns_what_it_needs(service: Service, tmp_path: Path) -> None:
    for name, token, message in (
        ("a", ACCESS.token(Role.AGENT), http_requests.NODE_UNNAMED(node="a")),
        ("a", agent_token("b"), http_requests.ANOTHER_NODE(own="b", node="a")),
    ):
        (tmp_path / "token").write_text(token)
        done = service.command("agent", "--name", name, "--state-dir", str(tmp_path / name), "--token-file", str(tmp_path / "token"))
        assert done.returncode == 1 and has(done.stderr, agents.NODE_REFUSED) and message in done.stderr, done.stderr
        service.wait_for_words("orchestrator.txt", message)


def test_what_an_agent_reports_about_its_node_is_bounded(service: Service, hostile: Callable[[str, str], Hostile], tmp_path: Path) -> None:
    labels = {f"{n}": "x" * 1000 for n in range(700)}
    for hello, message, code in (
        (Hello("b", "10.0.0.9", -8, "", {}, ()), wire.SLOTS_OUT_OF_RANGE(slots=-8, most=MOST_SLOTS), 1008),
        (Hello("b", "10.0.0.9", 8, "", labels, ()), wire.NODE_TOO_LONG.code, 1013),  # earlier versions took it: its agent comes again
    ):
        sent = hostile("/v1/agent", agent_token("b"))
        sent.says(hello)
        assert message in sent.is_sent_away(code)
    service.wait_for_words("orchestrator.txt", service_jobs.NODE_KEPT_WAITING.code)
    assert service.ask("nodes") == []
    later = hostile("/v1/agent", agent_token("b"))
    later.says(Hello("b", "10.0.0.9", 1, "", {}, ()), Hello("b", "10.0.0.9", 1, "", labels, ()))
    service.wait_for_words("orchestrator.txt", wire.NODE_TOO_LONG.code)
    assert [(line["node"], line["labels"]) for line in service.ask("nodes")] == [("b", {})]
    words = [word for number in range(9) for word in ("--label", f"{number}={'x' * 1000}")]
    done = service.command("agent", "--state-dir", str(tmp_path / "a"), *words)
    assert done.returncode == 2 and has(done.stderr, wire.NODE_TOO_LONG), done.stderr


def test_an_operator_of_one_job_acts_on_that_job_only(service: Service, tmp_path: Path) -> None:
    """A request for all jobs is kept, and only a token for all jobs can take it back."""
    service.start_agent("a", 2)
    service.wait_for_nodes(1)
    mine = service.run("mine", ALONE, "spread.py", WAIT="1")
    mine.wait_for_state("training")
    (tmp_path / "operator").write_text(ACCESS.token(Role.OPERATE, "mine"))

    def asks(what: str, body: dict[str, Any]) -> httpx.Response:
        header = {"Authorization": f"Bearer {(tmp_path / 'operator').read_text()}"}
        return httpx.post(f"{service.url}/v1/{what}", json=body, headers=header, timeout=LONG)

    def of_the_service() -> tuple[str, str]:
        (line,) = service.ask("nodes")
        return line["taint"], line["drain"]

    def of_the_job() -> list[tuple[str, str, str]]:
        return sorted((taint["source"], taint["reason"], taint["by"]) for taint in mine.status()["tainted"])

    assert asks("jobs/mine/taint", {"node": "a", "reason": "loud"}).status_code == 200
    assert asks("jobs/mine/drain", {"node": "a", "reason": "to look", "force": True}).status_code == 200
    assert of_the_job() == [("drain", "to look", "job"), ("operator", "loud", "job")]
    assert of_the_service() == ("", ""), "it concerns no other job"
    other = service.run("other", ALONE, "spread.py").ends()
    assert other.code == 0, other.output
    for what in ("taint", "drain", "undrain"):
        refused = asks(f"nodes/a/{what}", {})
        assert refused.status_code == 403 and refused.json()["detail"] == http_requests.ROLE_NEEDED_FOR_ALL(role="operate")
    assert asks("jobs/mine/taint", {"node": "a"}).status_code == 200
    assert of_the_job() == []

    assert service.command("taint", "--node", "a", "--reason", "its fan").returncode == 0
    assert of_the_service() == (service_jobs.NODE_TAINTED(reason="its fan"), "")
    assert of_the_job() == [("operator", "its fan", "service")]
    kept = http_requests.SET_FOR_ALL_JOBS(node="a", reason="its fan")
    for reason in ("", "mine now"):
        assert asks("jobs/mine/taint", {"node": "a", "reason": reason}).json()["detail"] == kept
    for words, message in (((), http_requests.ROLE_NEEDED_FOR_ALL(role="operate")), (("--job", "mine"), kept)):
        done = service.command("taint", "--node", "a", "--remove", *words, "--token-file", str(tmp_path / "operator"))
        assert done.returncode == 1 and message in " ".join(done.stderr.split()), done.stderr
    service.kill_orchestrator()
    service.start_orchestrator()
    service.wait_for_nodes(1)
    assert of_the_service() == (service_jobs.NODE_TAINTED(reason="its fan"), "")
    assert service.command("taint", "--node", "a", "--remove").returncode == 0
    assert of_the_service() == ("", "") and of_the_job() == []

    assert service.command("drain", "a", "--reason", "a new kernel", "--force").returncode == 0
    kept = http_requests.SET_FOR_ALL_JOBS(node="a", reason="a new kernel")
    for what in ("drain", "undrain"):
        assert asks(f"jobs/mine/{what}", {"node": "a", "force": True}).json()["detail"] == kept
    assert service.command("taint", "--node", "a", "--device", "gpu0").returncode == 2
    assert service.command("undrain", "a", "--no-check").returncode == 0
    assert of_the_service() == ("", "") and of_the_job() == []
    mine.let("end")
    ended = mine.ends()
    assert ended.code == 0 and ended.incidents == [], ended.output


def test_a_job_that_does_not_fit_yet_is_passed_by_a_smaller_one(service: Service) -> None:
    service.start_agent("a", 2)
    service.wait_for_nodes(1)
    first = service.run("first", ALONE, "spread.py", WAIT="1")
    first.wait_for_state("training")
    large = service.run("large", [*ALONE, "--nproc-per-node", "2"], "spread.py")
    large.wait_for_state("waiting")
    small = service.run("small", ALONE, "spread.py").ends()
    assert small.code == 0, small.output
    assert large.status()["state"] == "waiting"
    first.let("end")
    for job in (first, large):
        assert job.ends().code == 0, job.output

"""Three orchestrators as processes on loopback, with TLS, killed now and then: what one has shown stays, and all end with the same."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.processes import marked, send, wait_until
from tests.message_texts import has, refused
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from understudy.agent.orchestrator_link import OrchestratorLink, Sent
from understudy.common.names import JOURNAL
from understudy.core import events
from understudy.links.messages import Message
from understudy.messages import http_requests, quorums
from understudy.orchestrator import journal

SPEC = {"spec": {"job": "job", "world_size": 1, "workers_per_node": 1, "spares": 0}, "timeouts": {"stop": 3.0}}
SECRET = "a secret of this test"
LONG = 120.0  # seconds: generous, for a machine that is busy
BURST = 40


class Members:
    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._certificates = _certificates(folder)
        self.trust = ssl.create_default_context(cafile=self._certificates / "ca.crt")
        self._environment = environment
        holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self._ports = [holder.getsockname()[1] for holder in holders]
        for holder in holders:
            holder.close()
        self.urls = [f"https://127.0.0.1:{port}" for port in self._ports]
        self.seen: dict[int, dict[str, Any]] = {}  # by number, what any of them has shown
        self.processes = [self.start(number) for number in range(3)]

    def start(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "understudy.orchestrator", "--run-dir", str(self.folder / f"run{number}")]
        command += ["--spec-json", json.dumps(SPEC), "--port", str(self._ports[number])]
        command += ["--members", ",".join(self.urls), "--number", str(number)]
        cert, key, authority = (str(self._certificates / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        command += ["--tls-cert", cert, "--tls-key", key, "--trust", authority]
        with (self.folder / f"output{number}.txt").open("ab") as output:
            return subprocess.Popen(command, env=self._environment, stderr=output)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()

    def start_again(self, number: int) -> None:
        self.processes[number] = self.start(number)

    def ask(self, number: int, path: str, body: Any = None, limit: float = LONG) -> httpx.Response:
        return httpx.request(
            "POST" if body is not None else "GET",
            self.urls[number] + path,
            json=body,
            headers={"Authorization": f"Bearer {SECRET}"},
            timeout=limit,
            verify=self.trust,
        )

    def leader(self) -> int | None:
        for number in range(3):
            try:
                if self.ask(number, "/v1/health", limit=2.0).status_code == 200:
                    return number
            except httpx.TransportError:
                continue
        return None

    def wait_for_leader(self) -> int:
        wait_until(lambda: self.leader() is not None, "one leads", LONG)
        return self.leader() or 0

    def stop(self) -> bool:
        """Whether one that leads has taken it, or the job has ended."""
        try:
            stopping = self.ask(self.wait_for_leader(), "/v1/jobs/-/stop", {"reason": "enough", "exit_code": 7})
        except httpx.TransportError:
            return any(process.poll() is not None for process in self.processes)
        assert stopping.status_code in (200, 503), stopping.text
        return stopping.status_code == 200

    def look(self) -> int:
        """Read new events from the one that leads; return the number of events."""
        leader = self.leader()
        if leader is not None:
            try:
                text = self.ask(leader, "/v1/jobs/-/events").text
            except httpx.TransportError:
                return len(self.seen)
            found = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
            for event in found:
                if "number" in event:
                    assert self.seen.setdefault(event["number"], event) == event
        return len(self.seen)


def _certificates(folder: Path) -> Path:
    """An authority's certificate, and one with its key for all members."""
    for words in (["init"], ["server", "head", "--host", "localhost"]):
        command = [sys.executable, "-m", "understudy.cli", "certs", words[0], str(folder / "tls"), *words[1:]]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(made.stdout.strip())


class Node:
    """An agent without workers, with the agents' own link, in a thread."""

    def __init__(self, members: Members) -> None:
        self._urls, self._trust = members.urls, members.trust
        self._loop = asyncio.new_event_loop()
        self.sent = 0
        self._greetings = self._greetings_before = 0
        self._link: OrchestratorLink | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        address = ",".join(self._urls)
        self._link = OrchestratorLink(
            lambda: address, "/v1/jobs/-/agent", SECRET, self._trust, self._story, self._told, lambda text: None, lambda: True
        )
        await self._link.run()

    def _story(self) -> list[Sent]:
        self._greetings += 1
        return [events.NodeJoined("node0", "127.0.0.1", 0), events.WorkerStarted("w0", "node0", 4711)]

    def _told(self, message: Message) -> None:
        pass

    def burst(self) -> None:
        self._greetings_before = self._greetings
        for _ in range(BURST):
            self.sent += 1
            assert self._link is not None
            self._loop.call_soon_threadsafe(self._link.send, events.Notice("w0", -1, f"notice {self.sent}"))

    def burst_if_lost(self) -> None:
        """The last one may be, if it was sent to one that did not lead long enough to share it: a new connection shows it."""
        if self._greetings > self._greetings_before:
            self.burst()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with marked() as mark:
        yield Members(tmp_path, mark.environment(UNDERSTUDY_TOKEN=SECRET))


def test_they_are_killed_at_various_moments(members: Members) -> None:
    """Nothing that was published is lost or changed. Unpublished events may be lost, and agents repeat those that matter."""
    members.wait_for_leader()
    node = Node(members)
    wait_until(lambda: members.look() >= 2, "the node has joined", LONG)

    def grows(count: int) -> Callable[[], bool]:
        def look() -> bool:
            node.burst_if_lost()
            return members.look() >= count

        return look

    for who in ("leader", "follower", "leader", "all"):
        before = members.look()
        node.burst()
        wait_until(grows(before + 5), "some of a burst are there", LONG)
        leader = members.wait_for_leader()
        victims = {"leader": [leader], "follower": [(leader + 1) % 3], "all": [0, 1, 2]}[who]
        for victim in victims:
            members.kill(victim)
        if who == "leader":
            members.wait_for_leader()  # the two that are left
        for victim in victims:
            members.start_again(victim)
    before = members.look()
    wait_until(grows(before + 1), "the node is back", LONG)
    wait_until(members.stop, "one that leads has taken the stop", LONG)
    assert [process.wait(LONG) for process in members.processes] == [0, 0, 0]
    recorded = [journal.read(members.folder / f"run{number}" / JOURNAL) for number in range(3)]
    first = recorded[0]
    assert first is not None
    assert all(each is not None and each.events == first.events for each in recorded)
    times = [now for now, _ in first.events]
    assert {number: times[number - 1] for number in members.seen} == {number: event["time"] for number, event in members.seen.items()}
    ended = journal.replay(first.settings, first.events).state.ended
    assert ended is not None and ended.exit_code == 7


def test_one_that_was_stopped_steps_down_when_it_wakes_up(members: Members) -> None:
    """Also if no decision is requested from it."""
    leader = members.wait_for_leader()
    pid = members.processes[leader].pid
    send(pid, signal.SIGSTOP)
    wait_until(lambda: members.leader() not in (None, leader), "another one leads", LONG)
    send(pid, signal.SIGCONT)
    reported = members.folder / f"output{leader}.txt"
    wait_until(lambda: has(reported.read_text(), quorums.LEADS_NO_MORE), "it has noticed", LONG)
    wait_until(lambda: members.urls[leader] not in _leading(members, leader), "it knows another one", LONG)
    assert members.processes[leader].poll() is None


def _told(members: Members, number: int) -> str:
    return (members.folder / f"output{number}.txt").read_text()


def _words(members: Members, node: Node) -> None:
    """Send a few events, which the leader has published: a majority has them."""
    before = members.look()
    node.burst()

    def there() -> bool:
        node.burst_if_lost()
        return members.look() >= before + 5

    wait_until(there, "a majority has some of a burst", LONG)


def _copied(members: Members, number: int, to: Path) -> None:
    """The run directory of one that is not running."""
    shutil.copytree(members.folder / f"run{number}", to, ignore=shutil.ignore_patterns("lock"))


def _put_back(members: Members, number: int, copy: Path) -> None:
    shutil.rmtree(members.folder / f"run{number}")
    shutil.copytree(copy, members.folder / f"run{number}")


def _has_all(members: Members, number: int) -> bool:
    """Whether all that was shown is in its own journal."""
    found = journal.read(members.folder / f"run{number}" / JOURNAL)
    return found is not None and len(found.events) >= len(members.seen)


def test_one_whose_disk_is_put_back_takes_no_part(members: Members, tmp_path: Path) -> None:
    """Its disk has the right identity, and lacks events that it has acknowledged. Also after another start, and whichever leads."""
    leader = members.wait_for_leader()
    node = Node(members)
    wait_until(lambda: members.look() >= 2, "the node has joined", LONG)
    restored, other = (leader + 1) % 3, (leader + 2) % 3
    members.kill(restored)
    _copied(members, restored, tmp_path / "copy")
    members.start_again(restored)
    for _ in range(2):
        _words(members, node)
        wait_until(lambda: _has_all(members, restored), "it has them, too", LONG)
    members.kill(restored)
    _put_back(members, restored, tmp_path / "copy")
    members.start_again(restored)
    wait_until(lambda: has(_told(members, restored), quorums.FORGOT), "it says that it takes no part", LONG)
    url = members.urls[restored]
    wait_until(lambda: has(_told(members, leader), quorums.MEMBER_FORGOT, url=url), "the others say so, too", LONG)
    members.kill(leader)
    members.kill(restored)
    members.start_again(restored)
    wait_until(lambda: _told(members, restored).count(quorums.FORGOT.code) > 1, "it knows that still, also without the leader", LONG)
    members.start_again(leader)
    members.wait_for_leader()
    _words(members, node)
    wait_until(members.stop, "one that leads has taken the stop", LONG)
    assert [members.processes[number].wait(LONG) for number in (leader, other)] == [0, 0]
    members.processes[restored].terminate()
    assert members.processes[restored].wait(LONG) == 0
    first, second = (journal.read(members.folder / f"run{number}" / JOURNAL) for number in (leader, other))
    assert first is not None and second is not None and first.events == second.events
    times = [now for now, _ in first.events]
    assert {number: times[number - 1] for number in members.seen} == {number: event["time"] for number, event in members.seen.items()}


def test_messages_that_are_lost_with_all_who_knew_of_them_are_reported_when_one_is_back(members: Members, tmp_path: Path) -> None:
    """Two of three have had them: one is away, and the other one's disk is put back. That cannot be found before the first is back."""
    leader = members.wait_for_leader()
    node = Node(members)
    wait_until(lambda: members.look() >= 2, "the node has joined", LONG)
    restored, other = (leader + 1) % 3, (leader + 2) % 3
    for number in (other, restored):
        members.kill(number)
    _copied(members, restored, tmp_path / "copy")
    members.start_again(restored)
    for _ in range(2):
        _words(members, node)
        wait_until(lambda: _has_all(members, restored), "it has them, too", LONG)
    for number in (restored, leader):
        members.kill(number)
    _put_back(members, restored, tmp_path / "copy")
    for number in (restored, other):
        members.start_again(number)
    wait_until(lambda: members.leader() in (restored, other), "one that lacks words leads", LONG)
    members.start_again(leader)
    wait_until(lambda: has(_told(members, restored), quorums.FORGOT, url=members.urls[leader]), "one has forgotten them, and says so", LONG)
    wait_until(lambda: has(_told(members, leader), quorums.CONTRADICTED), "the one that has them says what to do", LONG)
    wait_until(lambda: members.leader() is None, "no leader decides anything any more", LONG)
    for process in members.processes:
        process.terminate()
        process.wait(LONG)


def _leading(members: Members, number: int) -> str:
    """The leader's address that it gives; its own while it gives none."""
    try:
        detail = members.ask(number, "/v1/health").json()["detail"]
    except (httpx.TransportError, KeyError):
        return members.urls[number]
    return next((url for url in members.urls if has(detail, http_requests.ASK_LEADER, url=url)), members.urls[number])


def _connection(members: Members, address: str, token: str) -> connect:
    """Not the library's blocking client: it reads and writes one TLS connection from two threads, which OpenSSL does not bear."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return connect(address, ssl=members.trust, additional_headers=headers, proxy=None, open_timeout=LONG)


def _refusal(members: Members, address: str, token: str) -> int:
    """The HTTP status of the answer to one who wants to talk."""

    async def refused() -> int:
        with pytest.raises(InvalidStatus) as answer:
            async with _connection(members, address, token):
                pass
        return answer.value.response.status_code

    return asyncio.run(refused())


async def _talk(members: Members, address: str) -> None:
    """As a member that is none."""
    async with _connection(members, address, SECRET) as peer:
        non_member = ["MemberHello", {"member": 1, "identity": "nobody", "roster": []}]
        await peer.send(json.dumps(non_member))
        assert json.loads(await asyncio.wait_for(peer.recv(), LONG))[1]["roster"]
        await peer.send(json.dumps(["RequestVote", {"term": 1000, "last": 1000, "last_term": 1000, "pre_vote": False}]))
        await peer.send("nonsense")
        with refused(ConnectionClosed, quorums.NOT_OF_MEMBERS):
            await asyncio.wait_for(peer.recv(), LONG)


def test_who_does_not_lead_sends_everybody_away(members: Members) -> None:
    leader = members.wait_for_leader()
    other = (leader + 1) % 3
    wait_until(lambda: members.urls[leader] in members.ask(other, "/v1/health").text, "it knows who leads", LONG)
    answer = members.ask(other, "/v1/jobs/-/status")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == http_requests.ASK_LEADER(url=members.urls[leader])
    assert _refusal(members, members.urls[other].replace("http", "ws") + "/v1/jobs/-/agent", "") == 503
    assert "ERROR" not in (members.folder / f"output{other}.txt").read_text(), "to turn a client away is no fault"


@pytest.mark.gate
def test_only_the_secret_itself_opens_the_members_door(members: Members) -> None:
    members.wait_for_leader()
    address = members.urls[0].replace("http", "ws") + "/v1/quorum"
    (members.folder / "secret").write_text(SECRET)
    words = [sys.executable, "-m", "understudy.cli", "token", "--token-file", str(members.folder / "secret"), "--role", "submit"]
    submits = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, "UNDERSTUDY_TOKEN": ""}).stdout.strip()
    for token, status in (("", 401), ("another secret", 401), (submits, 403)):
        assert _refusal(members, address, token) == status
    asyncio.run(_talk(members, address))
    leader = members.wait_for_leader()
    assert has("".join((members.folder / f"output{number}.txt").read_text() for number in range(3)), quorums.MEMBER_UNKNOWN)
    members.processes[leader].send_signal(signal.SIGTERM)
    assert members.processes[leader].wait(LONG) == 0, "the job goes on with the others"
    wait_until(lambda: members.leader() not in (None, leader), "another one leads", LONG)

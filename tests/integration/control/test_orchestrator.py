"""The orchestrator as a process, on loopback: its interface, its life, and being killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.processes import wait_until
from tests.message_texts import has
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from understudy.common.page_view import Activity, PageView
from understudy.core import commands, events
from understudy.core.model import BuddyCopyRef, LossCause, Position, VotePhase
from understudy.links.messages import Message, Pages, decode, encode, unfold
from understudy.messages import disputes, http_requests, losses, moves, orchestrators, recoveries, service_jobs, training_evidence
from understudy.orchestrator import views
from understudy.orchestrator.state_view import offline_state_table

SPEC = {"spec": {"job": "job", "world_size": 2, "workers_per_node": 2, "spares": 1}, "timeouts": {"stop": 3.0}}
LONG = 30.0  # seconds: generous, for a machine that is busy


class Orchestrator:
    """A running one, and the same run directory when it is started again."""

    def __init__(self, run_dir: Path, spec: dict[str, Any]) -> None:
        self.run_dir = run_dir
        self.port = 0
        self._spec = json.dumps(spec)
        self._sockets = ExitStack()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "understudy.orchestrator", "--run-dir", str(self.run_dir)]
        command += ["--spec-json", self._spec, "--port", str(self.port)]
        place = self.run_dir / "orchestrator.json"
        place.unlink(missing_ok=True)
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: place.exists() or self.process.poll() is not None, "the orchestrator listens", LONG)
        assert self.process.poll() is None
        said = json.loads(place.read_text())
        assert said["pid"] == self.process.pid
        self.url = said["url"]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.token = (self.run_dir / "token").read_text().strip()

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return httpx.request(method, self.url + "/v1/jobs/job" + path, json=body, headers=headers, timeout=LONG)

    def connect(self, token: str | None = None) -> ClientConnection:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        address = self.url.replace("http", "ws") + "/v1/jobs/job/agent"
        return self._sockets.enter_context(connect(address, additional_headers=headers, proxy=None))

    def agent(self, node: str = "n0", rank: int = 0) -> Agent:
        return Agent(self.connect(), node, rank)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._sockets.close()

    def end(self) -> tuple[int, str]:
        """Return the exit code and the output."""
        _, said = self.process.communicate(timeout=LONG)
        return self.process.returncode, said


class Agent:
    """The other end of the WebSocket."""

    def __init__(self, socket: ClientConnection, node: str, rank: int) -> None:
        self.socket = socket
        self.node = node
        self._heard: deque[Message] = deque()
        self.say(events.NodeJoined(node, "127.0.0.1", rank))

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.socket.send(encode(message))

    def hear(self, kind: type[Any]) -> Any:
        """The next command, which must be of this kind."""
        command = self.next()
        assert isinstance(command, kind), command
        return command

    def next(self, timeout: float = LONG) -> Message:
        """The next command, whichever. Raises `TimeoutError`."""
        while not self._heard:
            for line in str(self.socket.recv(timeout)).split("\n"):
                self._heard += unfold(decode(line))
        return self._heard.popleft()

    def begin(self) -> None:
        """Up to the first commit of both ranks."""
        for number in range(3):
            assert self.hear(commands.StartWorker).worker == f"w{number}"
        for number in range(3):
            self.say(events.WorkerStarted(f"w{number}", self.node, 100 + number))
            self.say(events.WorkerWarm(f"w{number}", f"127.0.0.1:{7000 + number}"))
        assert [self.hear(commands.Assign).rank for _ in range(2)] == [0, 1]
        self.say(events.Committed("w0", 0, 0, 1), events.Committed("w1", 0, 0, 1))

    def lose(self) -> None:
        """Rank 1 is killed; up to Recover."""
        self.say(events.WorkerLost("w1", LossCause.KILLED, "signal 9", time.time()))
        self.hear(commands.KillWorker)
        self.hear(commands.Abort)
        self.hear(commands.Assign)
        self.say(events.Quiesced("w0", 1, Position(3, VotePhase.RUNNING), (BuddyCopyRef(1, 2),), 3))
        assert {self.hear(commands.Recover).worker for _ in range(2)} == {"w0", "w2"}


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[Orchestrator]:
    running = Orchestrator(tmp_path, SPEC)
    yield running
    running.close()


def wait_for(orchestrator: Orchestrator, **wanted: Any) -> dict[str, Any]:
    status: dict[str, Any] = {}

    def there() -> bool:
        status.update(orchestrator.ask("GET", "/status").json())
        return all(status[name] == value for name, value in wanted.items())

    wait_until(there, f"{wanted} in {status}", LONG)
    return status


def test_nothing_without_the_token(orchestrator: Orchestrator) -> None:
    assert (orchestrator.run_dir / "token").stat().st_mode & 0o777 == 0o600
    for method, path in (("GET", "/status"), ("GET", "/report"), ("POST", "/migrate"), ("POST", "/stop")):
        for token in ("nothing", "wrong", orchestrator.token[:-1]):
            answer = orchestrator.ask(method, path, {"rank": 0}, token=token)
            assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert httpx.request(method, f"{orchestrator.url}/v1/jobs/job{path}").status_code == 401
    with pytest.raises(InvalidStatus) as refused:
        orchestrator.connect(token="wrong")
    assert refused.value.response.status_code == 401
    assert orchestrator.ask("GET", "/status").status_code == 200
    paths = httpx.get(orchestrator.url + "/openapi.json").json()["paths"]
    assert {f"/v1/jobs/{{job}}/{what}" for what in ("status", "report", "migrate", "stop")} <= set(paths)


def test_a_job_from_start_to_end(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    agent.lose()
    agent.say(
        events.PhaseDone("w2", 1, "transfer", time.time(), 0.1, 1000),
        events.Verified("w2", 1, 7),
        events.Committed("w0", 1, 3, 4),
        events.Committed("w2", 1, 3, 4),
    )
    assert agent.hear(commands.StartWorker).worker == "w3"
    page = PageView(9, 1.0, Activity.RUNNING, 8, 8, 2.0, 40, 0.5)
    agent.say(Pages("n0", 3.0, {"w0": page, "w2": page}))
    status = wait_for(orchestrator, step=8)
    assert status["state"] == "training" and status["generation"] == 1 and status["transaction"] == 8
    assert [rank["worker"] for rank in status["ranks"]] == ["w0", "w2"]
    assert [spare["worker"] for spare in status["spares"]] == ["w3"]
    report = orchestrator.ask("GET", "/report").json()
    (incident,) = report["incidents"]
    assert incident["bytes_moved"] == 1000 and incident["seconds"] >= incident["phases"]["abort"] >= 0
    agent.say(events.StateListed("w0", 8, (events.StateItem("counter", "train.py", "adopted", True, 3),)))
    wait_until(lambda: orchestrator.ask("GET", "/state").json()["step"] == 8, "a list of its state", LONG)
    state = orchestrator.ask("GET", "/state").json()
    assert [entry["name"] for entry in state["entries"]] == ["counter"]

    agent.say(events.Finished("w0", 1), events.Finished("w2", 1))
    for _ in range(3):
        assert agent.hear(commands.Release).exit_code == 0
    assert agent.hear(commands.EndJob).exit_code == 0
    agent.socket.close()
    code, output = orchestrator.end()
    assert code == 0
    assert has(output, losses.KILLED, rank=1, worker="w1", node="n0", detail="signal 9")
    assert has(output.splitlines()[-1], recoveries.ALL_FINISHED, ranks=2, incidents="1 incident") and orchestrator.token not in output
    assert views.offline_report(orchestrator.run_dir) == report and offline_state_table(orchestrator.run_dir) == state
    after = views.offline_status(orchestrator.run_dir)
    assert after["state"] == "finished" and after["step"] == 8


def test_frames_that_are_no_good_are_dropped(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    agent.socket.send("not json")
    agent.socket.send(b"\x00\x01")
    agent.socket.send("[" * 100_000)
    agent.socket.send('{"type": "WorkerLost", "worker": 7}')
    agent.socket.send('{"type": "NoSuchThing"}')
    agent.say(commands.EndJob(1, "an agent does not decide this"))
    agent.say(events.NodesLost((events.LostNode("n0", "nor this"),)), events.Expired("quiesce"))
    agent.say(events.WorkerLost("w99", LossCause.KILLED, "unknown worker", 0.0))
    agent.say(events.Committed("w0", -5, 3, 99))
    agent.say(events.NodeJoined("n0", "127.0.0.1", 0, workers=()))  # when none were started yet
    agent.say(events.Notice("w0", 0, "still here"))
    status = wait_for(orchestrator, notices=["rank 0: still here"])
    assert status["state"] == "training" and status["generation"] == 0 and status["step"] == 1
    agent.lose()  # and it still does its work


def test_a_generation_that_the_journal_does_not_know_is_ended_for_all(orchestrator: Orchestrator) -> None:
    """An orchestrator that was killed had begun it, and could not write down why."""
    agent = orchestrator.agent()
    agent.begin()
    agent.say(events.Quiesced("w0", 7, Position(3, VotePhase.RUNNING), (), 3))
    status = wait_for(orchestrator, state="recovering")
    assert status["generation"] == 8 and agent.hear(commands.Abort).generation == 8


def test_an_event_of_a_stale_generation_changes_nothing(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    agent.lose()
    agent.say(events.Committed("w0", 0, 3, 4), events.VerifyFailed("w2", 0, "old news"), events.Verified("w2", 0, 5))
    agent.say(events.Notice("w0", 0, "after them"))
    status = wait_for(orchestrator, notices=["rank 0: after them"])
    assert status["state"] == "recovering" and status["ranks"][1]["state"] == "newcomer"


def test_who_does_not_introduce_itself_is_sent_away(orchestrator: Orchestrator) -> None:
    socket = orchestrator.connect()
    socket.send(encode(events.WorkerWarm("w0", "127.0.0.1:1")))
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=LONG)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
    orchestrator.agent().hear(commands.StartWorker)
    second = orchestrator.agent("n1", 0)
    with pytest.raises(ConnectionClosed) as closed:
        second.socket.recv(timeout=LONG)
    assert closed.value.rcvd is not None and closed.value.rcvd.reason == http_requests.NODE_RANK_TAKEN(node_rank=0)


def test_migration_by_the_interface(orchestrator: Orchestrator) -> None:
    answer = orchestrator.ask("POST", "/migrate", {"rank": 1})
    assert answer.status_code == 409 and has(answer.json()["detail"], moves.NOT_SETTLED)
    agent = orchestrator.agent()
    agent.begin()
    wait_for(orchestrator, state="training", step=1)
    assert orchestrator.ask("POST", "/migrate", {"rank": 7}).status_code == 409
    assert orchestrator.ask("POST", "/migrate", {"rank": -1}).status_code == 422
    assert orchestrator.ask("POST", "/migrate", {"rank": 1, "reason": "firmware"}).status_code == 200
    assert {agent.hear(commands.Publish).worker for _ in range(2)} == {"w0", "w1"}
    assert agent.hear(commands.Assign).planned
    assert has(orchestrator.ask("POST", "/migrate", {"rank": 0}).json()["detail"], moves.ALREADY_MIGRATING)


def test_a_disputed_job_by_the_interface(orchestrator: Orchestrator) -> None:
    """Replicas differ: the job pauses until an operator chooses. The other replica's node is tainted, until an operator removes the
    taint.
    """
    agent = orchestrator.agent()
    agent.begin()
    wait_for(orchestrator, state="training", step=1)
    answer = orchestrator.ask("POST", "/believe", {"rank": 1})
    assert answer.status_code == 409 and has(answer.json()["detail"], disputes.NOT_HELD)
    agent.say(events.ReplicasDiffer("w0", 0, (), ((0,), (1,)), "a tensor is not the same"))
    assert {agent.hear(commands.Abort).worker for _ in range(2)} == {"w0", "w1"}
    for worker in ("w0", "w1"):
        agent.say(events.Quiesced(worker, 1, Position(3, VotePhase.IDLE), (BuddyCopyRef(0, 2), BuddyCopyRef(1, 2)), 3))
    wait_for(orchestrator, state="held")
    assert "a tensor is not the same" in orchestrator.ask("GET", "/status").json()["message"]
    assert orchestrator.ask("GET", "/report").json()["incidents"][0]["cause"] == "corrupt"
    assert orchestrator.ask("POST", "/believe", {"rank": 7}).status_code == 409
    assert orchestrator.ask("POST", "/believe", {"rank": 1, "reason": "checked"}).status_code == 200
    assert agent.hear(commands.KillWorker).worker == "w0"
    assert agent.hear(commands.Abort).worker == "w1"
    assert agent.hear(commands.Assign).rank == 0
    assert "rank 0" in orchestrator.ask("GET", "/status").json()["taints"]["n0"]
    assert orchestrator.ask("POST", "/taint", {"node": "nowhere", "reason": "x"}).status_code == 409
    assert orchestrator.ask("POST", "/taint", {"node": "n0"}).status_code == 200
    assert orchestrator.ask("GET", "/status").json()["taints"] == {}
    assert orchestrator.ask("POST", "/taint", {"node": "n0", "reason": "its fan is loud"}).status_code == 200
    assert orchestrator.ask("GET", "/status").json()["taints"] == {"n0": "its fan is loud"}


def test_stop_by_the_interface(orchestrator: Orchestrator) -> None:
    """Also with the exit code of an orchestrator that cannot lead (`UNUSABLE`), which its supervisor would take for one."""
    agent = orchestrator.agent()
    agent.begin()
    assert orchestrator.ask("POST", "/stop", {"reason": "enough", "exit_code": 2}).status_code == 200
    assert agent.hear(commands.EndJob).exit_code == 2
    agent.socket.close()
    code, output = orchestrator.end()
    assert code == 0 and has(output.splitlines()[-1], losses.STOPPED, reason="enough")


def test_sigterm_ends_the_job(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    orchestrator.process.send_signal(signal.SIGTERM)
    assert agent.hear(commands.EndJob).exit_code == 143
    began = time.monotonic()
    code, output = orchestrator.end()  # the agent does not go: the wait for it is bounded
    assert code == 0 and has(output, service_jobs.AGENTS_STILL_CONNECTED)
    assert time.monotonic() - began < LONG


def test_a_killed_orchestrator_goes_on_where_it_was(orchestrator: Orchestrator) -> None:
    agent = orchestrator.agent()
    agent.begin()
    agent.lose()
    before = wait_for(orchestrator, generation=1, state="recovering")
    deadline = time.monotonic() + LONG
    while views.offline_report(orchestrator.run_dir)["incidents"] != orchestrator.ask("GET", "/report").json()["incidents"]:
        assert time.monotonic() < deadline
    orchestrator.process.kill()
    orchestrator.process.communicate()

    orchestrator.start()
    assert orchestrator.ask("GET", "/status").json() == before
    agent = orchestrator.agent()
    # Pending commands are sent again, and repeats from the agent change nothing.
    again = [agent.next() for _ in range(3)]
    assert [type(command).__name__ for command in again] == ["Assign", "Recover", "Recover"]
    agent.say(*(events.WorkerStarted(f"w{number}", "n0", 100 + number) for number in (0, 2)))
    agent.say(*(events.WorkerWarm(f"w{number}", f"127.0.0.1:{7000 + number}") for number in (0, 2)))
    agent.say(events.WorkerLost("w1", LossCause.KILLED, "signal 9", time.time()))
    agent.say(events.Verified("w2", 1, 7), events.Committed("w0", 1, 3, 4), events.Committed("w2", 1, 3, 4))
    assert agent.hear(commands.StartWorker).worker == "w3"
    assert wait_for(orchestrator, state="training")["incidents"] == 1


def test_a_hang_is_a_loss(tmp_path: Path) -> None:
    limits = {"beat": 0.05, "hang_floor": 0.5, "hang_factor": 1.0, "hang_first": 1.0, "stop": 1.0}
    orchestrator = Orchestrator(tmp_path, {**SPEC, "timeouts": limits})
    try:
        agent = orchestrator.agent()
        agent.begin()
        clock = 100.0
        stopped = PageView(50, 100.0, Activity.RUNNING, 3, 3, 100.0, 40, 0.01)
        command: Message | None = None
        while command is None:
            assert clock < 100.0 + LONG / 0.05
            clock += 0.05
            alive = PageView(51, clock, Activity.RUNNING, 3, 3, 100.0, 40, 0.01)
            agent.say(Pages("n0", clock, {"w0": alive, "w1": stopped}))
            try:
                command = agent.next(timeout=0.05)
            except TimeoutError:
                continue
        assert isinstance(command, commands.KillWorker) and command.worker == "w1" and has(command.reason, training_evidence.SILENT)
        assert agent.hear(commands.Abort).lost == (1,)
    finally:
        orchestrator.close()


def test_a_command_that_cannot_start_gives_the_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "understudy.orchestrator", "--run-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 2 and has(done.stderr, orchestrators.SETTINGS_NEEDED, folder=tmp_path)
    done = subprocess.run([*command, "--spec-json", "{}"], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 2 and has(done.stderr, orchestrators.SETTINGS_REFUSED)


def test_it_goes_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, threading\nprocess = subprocess.Popen(sys.argv[1:])\nprint(process.pid, flush=True)\n"
        "threading.Event().wait()\n"
    )
    command = [sys.executable, "-m", "understudy.orchestrator", "--run-dir", str(tmp_path), "--die-with-parent"]
    command += ["--spec-json", json.dumps(SPEC)]
    parent = subprocess.Popen([sys.executable, "-c", code, *command], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    orchestrator = int(parent.stdout.readline())
    ended = os.pidfd_open(orchestrator)
    try:
        wait_until((tmp_path / "orchestrator.json").exists, "the orchestrator listens", LONG)
        parent.kill()
        parent.wait()
        assert select.select([ended], [], [], LONG)[0]
    finally:
        os.close(ended)
        parent.stdout.close()

"""An orchestrator as a service, node agents, and jobs submitted to it: real processes, on this machine's loopback or on hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from tests.integration.hosts import Host, Place
from tests.integration.processes import Mark, pid_of, send, wait_for_end, wait_until
from tests.integration.training import JOBS, LONG, Outcome

from understudy.messages import orchestrators

TOKEN = "the secret of this test's service"


class Service:
    """A service. With a host, the orchestrator listens on its address, else on the loopback address. All processes have its secret, unless
    `more` words for the orchestrator and `variables` for all (empty ones are not set) replace it.
    """

    def __init__(self, folder: Path, mark: Mark, host: Host | None = None, more: Sequence[str] = (), **variables: str) -> None:
        self._more = list(more)
        self._plain = host is None and not more and not variables
        self._variables = {name: value for name, value in {"UNDERSTUDY_TOKEN": TOKEN, **variables}.items() if value}
        self.folder = folder
        self.host = host
        self.state = folder / "orchestrator"
        self._mark = mark
        self._port = 0
        self.source: Path | None = None  # the source of `understudy` for processes that are started from now on; None: this one
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._places: dict[str, tuple[Place | None, list[str]]] = {}
        self.start_orchestrator()

    def start_orchestrator(self, words: Sequence[str] = ()) -> None:
        """With other `words` for the command line, if any are given."""
        address = self.host.address if self.host is not None else "127.0.0.1"
        said = self.state / "orchestrator.json"
        said.unlink(missing_ok=True)
        words = words or ["orchestrator", "--listen", f"{address}:{self._port}", "--state-dir", str(self.state), *self._more]
        self.orchestrator = self._start(self.host, list(words), "orchestrator.txt")
        wait_until(lambda: said.exists() or self.orchestrator.poll() is not None, "the orchestrator serves", LONG)
        assert self.orchestrator.poll() is None, (self.folder / "orchestrator.txt").read_text()
        self.url = json.loads(said.read_text())["url"]
        self._port = int(self.url.rpartition(":")[2])

    def start_several(self, hosts: list[Host], database: str) -> list[subprocess.Popen[bytes]]:
        """Orchestrators on hosts, on one database; the first leads. Agents and commands are given the addresses of all."""
        self.kill_orchestrator()
        self.url = ",".join(f"http://{host.address}:29400" for host in hosts)
        made = []
        for number, host in enumerate(hosts):
            words = ["orchestrator", "--listen", f"{host.address}:29400", "--state-dir", str(self.folder / "shared")]
            made.append(self._start(host, words, f"orchestrator{number}.txt", UNDERSTUDY_DATABASE=database))
            said = orchestrators.SERVING.code if number == 0 else orchestrators.ANOTHER_LEADS.code
            self.wait_for_words(f"orchestrator{number}.txt", said)
        return made

    def wait_for_words(self, name: str, words: str) -> None:
        wait_until(lambda: words in (self.folder / name).read_text(), f"{words!r} in {name}", LONG)

    def kill_orchestrator(self) -> None:
        self.orchestrator.kill()
        self.orchestrator.wait()

    def start_agent(self, name: str, slots: int, place: Place | None = None, *more: str) -> None:
        words = ["agent", "--name", name, "--slots", str(slots), "--state-dir", str(self.folder / f"agent-{name}"), *more]
        self.start_agent_by(name, words, place)

    def start_nodes(self, names: str, slots: int) -> None:
        """A node of each letter; all are here then."""
        for name in names:
            self.start_agent(name, slots)
        self.wait_for_nodes(len(names))

    def start_agent_by(self, name: str, words: list[str], place: Place | None = None) -> None:
        self._places[name] = (place, words)
        self.agents[name] = self._start(place, words, f"agent-{name}.txt")

    def restart_agent(self, name: str) -> None:
        place, words = self._places[name]
        self.agents[name].kill()
        self.agents[name].wait()
        self.agents[name] = self._start(place, words, f"agent-{name}.txt")

    def wait_for_nodes(self, count: int) -> None:
        def there() -> bool:
            for name, agent in self.agents.items():
                assert agent.poll() is None, (self.folder / f"agent-{name}.txt").read_text()
            return bool(sum(node["state"] == "here" for node in self.get("nodes")) == count)

        wait_until(there, f"{count} nodes", LONG)

    def run(self, job: str, flags: list[str], script: str, **environment: str) -> Submitted:
        """Submit with `understudy run --orchestrator`; the output is in FOLDER/JOB/output.txt, the files of the job in FOLDER/JOB."""
        folder = self.folder / job
        folder.mkdir()
        words = ["run", "--rdzv-id", job, *flags, str(JOBS / script), str(folder)]
        process = self._start(self.host, words, f"{job}/output.txt", OMP_NUM_THREADS="1", **environment)
        return Submitted(self, job, folder, process)

    def held(self, name: str, *flags: str, spares: int = 2, **variables: str) -> Submitted:
        """Start a job of two ranks on two nodes, whose rank 1 is paused in its step 6, with warm spares. It goes on to its end only if
        released, and is not considered hung meanwhile.
        """
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", str(spares), "--drill", "off", "--hang-limit", "600", *flags]
        job = self.run(name, words, "spread.py", **{"HELD": "1:6", "WAIT": "1", **variables})
        job.wait_for("held 6")
        job.wait_until(lambda status: [spare["state"] for spare in status["spares"]] == ["warm"] * spares, "warm spares")
        return job

    def command(self, *words: str, host: Host | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._inside(host or self.host), sys.executable, "-m", "understudy.cli", *words],
            env={**self._environment(), **environment},
            capture_output=True,
            text=True,
            timeout=LONG,
        )

    def ask(self, *words: str) -> Any:
        done = self.command(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def get(self, *words: str, job: str = "") -> Any:
        """Ask as `ask` does, for repeated requests: from the orchestrator itself where that is simple. A command takes a second of the
        processor.
        """
        if not self._plain:
            return self.ask(*words, *(["--job", job] if job else []))
        path = "/".join((f"{self.url}/v1", *(["jobs", job] if job else []), *words))
        answer = httpx.get(path, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=LONG)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _environment(self, **more: str) -> dict[str, str]:
        known = {"UNDERSTUDY_ORCHESTRATOR": self.url} if hasattr(self, "url") else {}
        if self.source is not None:
            known["PYTHONPATH"] = f"{self.source}:{os.environ.get('PYTHONPATH', '')}"
        return self._mark.environment(COLUMNS="200", **{**self._variables, **known, **more})

    def _start(self, place: Place | None, words: list[str], output: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "understudy.cli", *words]
        if place is not None:
            return place.start(command, self.folder, self._environment(**environment), self.folder / output)
        with (self.folder / output).open("ab") as file:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment(**environment),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @staticmethod
    def _inside(host: Host | None) -> list[str]:
        return ["ip", "netns", "exec", host.namespace] if host is not None else []


class Submitted:
    """A job that was submitted, and the command that follows it."""

    def __init__(self, service: Service, name: str, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.service = service
        self.name = name
        self.folder = folder
        self.process = process

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text()

    def wait_for(self, marker: str) -> None:
        def there() -> bool:
            assert self.process.poll() is None, self.output
            return (self.folder / f"marker {marker}").exists()

        wait_until(there, marker, LONG)

    def wait_for_state(self, state: str) -> None:
        def there() -> bool:
            done = self.service.command("status", "--job", self.name, "--json")
            return done.returncode == 0 and json.loads(done.stdout)["state"] == state

        wait_until(there, f"{self.name} is {state}", LONG)

    def let(self, name: str) -> None:
        (self.folder / name).touch()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.service.ask("status", "--job", self.name)
        return found

    def node_of(self, rank: int) -> str:
        return str(self.status()["ranks"][rank]["node"])

    def wait_until(self, condition: Callable[[dict[str, Any]], object], what: str) -> None:
        """Its status meets the condition."""
        wait_until(lambda: condition(self.service.get("status", job=self.name)), f"{what} of {self.name}", LONG)

    def wait_for_pause(self) -> None:
        self.wait_until(lambda status: status["state"] == "recovering", "a spare that has set up, and the pause")

    def moves(self, held: str, *, to: str = "", away_from: str = "") -> None:
        """Wait until rank 1, which is paused until it is released by this name, has moved."""
        self.wait_for_pause()
        self.let(held)

        def there(status: dict[str, Any]) -> bool:
            node = status["ranks"][1]["node"]
            return bool(node == to if to else node != away_from)

        self.wait_until(there, "another node")

    def kill_rank(self, rank: int) -> None:
        pid = pid_of(lambda: self.status()["ranks"][rank])
        send(pid, signal.SIGKILL)
        wait_for_end(pid)

    def ends(self) -> SubmittedOutcome:
        return SubmittedOutcome(self.process.wait(LONG), self.output, self.folder, self)

    def ends_like(self, undisturbed: Outcome) -> SubmittedOutcome:
        """Wait for its end; the state and the log of each rank are those of the undisturbed run, bit by bit."""
        self.let("end")
        ended = self.ends()
        assert ended.code == 0, ended.output
        assert ended.record == undisturbed.record
        return ended


class SubmittedOutcome(Outcome):
    """Answers come from the service instead of a run directory."""

    def __init__(self, code: int, output: str, folder: Path, job: Submitted) -> None:
        super().__init__(code, output, folder)
        object.__setattr__(self, "_job", job)

    def ask(self, what: str) -> dict[str, Any]:
        job: Submitted = self._job  # type: ignore[attr-defined]
        found: dict[str, Any] = job.service.ask(what, "--job", job.name)
        return found

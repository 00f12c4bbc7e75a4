"""One job on several hosts: a failure of a host is one incident, and the result is bit by bit that of an undisturbed run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.hosts import Host, needs_hosts, network
from tests.integration.processes import Mark, marked, pid_of, wait_for_end, wait_until
from tests.integration.training import JOBS, LONG, Outcome, survived
from tests.message_texts import has

from understudy.messages import agents, coverage, service_jobs

pytestmark = needs_hosts
HELD = 6  # the step in which a rank waits while the test disturbs its host


class Spread:
    """A job with one rank and one spare on each host. `understudy run` is started on every one, as with torchrun."""

    def __init__(self, hosts: list[Host], folder: Path, mark: Mark, *flags: str, endpoints: int = 1, **environment: str) -> None:
        self.hosts = hosts
        self.main = hosts[0]  # which is there to the end
        self.folder = folder
        folder.mkdir()
        token = folder / "secret"
        token.write_text("a secret of this test")
        size, endpoint = str(len(hosts)), ",".join(f"{host.address}:29400" for host in hosts[:endpoints])
        self._flags = ["--nnodes", size, "--spares", size, "--rdzv-endpoint", endpoint, "--token-file", str(token), *flags]
        self._variables = mark.environment(COLUMNS="200", OMP_NUM_THREADS="1", **environment)  # as torchrun with several ranks on a host
        self.processes = [self._start(number, f"run{number}") for number in range(len(hosts))]

    def _start(self, number: int, run: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "understudy.cli", "run", "--node-rank", str(number), *self._flags]
        command += ["--run-dir", str(self.folder / run), str(JOBS / "spread.py"), str(self.folder)]
        return self.hosts[number].start(command, self.folder, self._variables, self.folder / f"output{number}.txt")

    def start_again(self, number: int) -> None:
        """Start a host again that has vanished, and has lost its files."""
        self.processes[number] = self._start(number, f"run{number} again")

    @property
    def output(self) -> str:
        return "".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("output*.txt")))

    def _waits(self, condition: Callable[[], bool], what: str) -> None:
        def there() -> bool:
            assert self.processes[self.hosts.index(self.main)].poll() is None, self.output
            return condition()

        wait_until(there, what, LONG)

    def wait_for(self, name: str) -> None:
        self._waits((self.folder / f"marker {name}").exists, name)

    def wait_for_words(self, host: int, words: str) -> None:
        self._waits(lambda: words in (self.folder / f"output{host}.txt").read_text(), words)

    def wait_for_step(self, step: int, generation: int) -> None:
        for rank in range(len(self.hosts)):
            self.wait_for(f"step {step} on {rank} in generation {generation}")

    def ask(self, what: str) -> dict[str, Any]:
        """On the main host."""
        folder = str(self.folder / f"run{self.hosts.index(self.main)}")
        command = [sys.executable, "-m", "understudy.cli", what, "--json", "--run-dir", folder]
        done = subprocess.run(["ip", "netns", "exec", self.main.namespace, *command], capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def ends(self) -> Outcome:
        number = self.hosts.index(self.main)
        code = self.processes[number].wait(LONG)
        (self.folder / "run").symlink_to(self.folder / f"run{number}")
        return Outcome(code, self.output, self.folder)


Start = Callable[..., Spread]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with marked() as mark, network(3) as hosts:
        yield lambda *flags, **options: Spread(hosts, tmp_path / "spread", mark, *flags, **options)


@pytest.fixture
def undisturbed(undisturbed_spread: Callable[[int], Outcome]) -> Outcome:
    return undisturbed_spread(3)


@pytest.mark.gate
def test_a_host_that_vanishes(start: Start, undisturbed: Outcome) -> None:
    """Its rank goes to a spare on another host, within seconds, without any notice. A third host's link is slow and loses packets."""
    job = start(HELD=f"1:{HELD}")
    job.hosts[2].slow("8mbit", queue="12kb")
    job.wait_for(f"held {HELD}")
    job.hosts[1].vanish()
    outcome = job.ends()
    (incident,) = survived(outcome, undisturbed)
    assert job.hosts[2].lost_packets() > 0
    assert has(outcome.output, coverage.COVERED, together="; so is that of any one node")
    assert (incident["cause"], incident["rank"]) == ("node", 1)
    assert len(incident["ranks"]) == 1
    assert incident["phases"]["detect"] >= 2.0
    assert has(incident["ranks"][0]["detail"], service_jobs.SILENT)


@pytest.mark.parametrize("way", ["cut", "silence", "deafen"])
def test_a_host_that_is_cut_off_and_comes_back(start: Start, undisturbed: Outcome, way: str) -> None:
    """Its worker goes on in the old generation, as far as it comes, and ends when it hears what happened; the host serves again."""
    job = start(HELD=f"1:{HELD}", WAIT="1")
    job.wait_for(f"held {HELD}")
    old = pid_of(lambda: job.ask("status")["ranks"][1])
    getattr(job.hosts[1], way)()
    job.wait_for_step(HELD + 1, generation=1)
    (job.folder / "let go").touch()
    job.hosts[1].heal()
    wait_for_end(old)
    wait_until(lambda: {"node": "node1", "state": "warm"}.items() <= _spare_on(job, "node1").items(), "a new spare there", LONG)
    (job.folder / "end").touch()
    (incident,) = survived(job.ends(), undisturbed)
    assert (incident["cause"], incident["rank"]) == ("node", 1)
    assert job.processes[1].wait(LONG) == 0


def _spare_on(job: Spread, node: str) -> dict[str, Any]:
    return next((spare for spare in job.ask("status")["spares"] if spare["node"] == node), {})


def test_a_host_that_is_cut_off_for_less_than_the_limit(start: Start, undisturbed: Outcome) -> None:
    job = start("--node-timeout", "30", HELD=f"1:{HELD}")
    job.wait_for(f"held {HELD}")
    job.hosts[1].cut()
    (job.folder / "let go").touch()
    job.hosts[1].heal()
    assert survived(job.ends(), undisturbed, losses=0) == []


def test_a_host_that_hears_nothing_any_more_ends_its_workers(start: Start, undisturbed: Outcome) -> None:
    """The job ends without it, so no process is left that could notify it."""
    job = start("--hang-limit", "8", "--alone-limit", "8", HELD=f"1:{HELD}")
    job.wait_for(f"held {HELD}")
    job.hosts[1].cut()
    survived(job.ends(), undisturbed)
    assert job.processes[1].wait(LONG) == 1
    assert has((job.folder / "output1.txt").read_text(), agents.JOB_LOST_US, node="node1")
    assert job.hosts[1].pids() == []

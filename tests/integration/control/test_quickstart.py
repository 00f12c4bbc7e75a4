"""The first pages, as printed: the README's diff, and the commands of docs/quickstart.md, by a user who copies them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import Mark, marked, pid_of, send, wait_until
from tests.integration.training import LONG
from tests.message_texts import has
from tests.pages import quickstart_commands, quickstart_script, script_for_torchrun

from understudy.cli.client import Server, of_job
from understudy.cli.kills import PHASES
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY
from understudy.messages import asking, recoveries, script_check

KILL = "kill -9 PID"
LOSS = re.compile(r"step (\d+): (\d\.\d+)$", re.MULTILINE)


LEAVES = """
import os, sys
torch.distributed.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


class Reader:
    """Types commands in a folder that contains the script of the page and nothing else."""

    def __init__(self, folder: Path, mark: Mark) -> None:
        self.folder = folder
        self._output = folder.parent / "output.txt"
        # With drills by chance, the one that the page asks for could find the spare busy.
        self._environment = mark.environment(COLUMNS="200", PYTHONUNBUFFERED="1", UNDERSTUDY_DRILL="off")
        folder.mkdir()
        (folder / "train.py").write_text(quickstart_script())

    @property
    def output(self) -> str:
        return self._output.read_text()

    def starts(self, command: str) -> subprocess.Popen[bytes]:
        with self._output.open("wb") as output:
            return subprocess.Popen(_words(command), cwd=self.folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT)

    def runs(self, command: str) -> str:
        done = subprocess.run(_words(command), cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        """From the orchestrator itself, because it is asked again and again: a command takes a second of the processor."""
        (run,) = (self.folder / "understudy-runs").iterdir()
        found: dict[str, Any] = Server.of(RunDirectory(run)).call("GET", of_job(ONLY, "status"), limit=LONG)
        return found

    def waits_for_a_warm_spare(self) -> None:
        wait_until(lambda: any(spare["state"] == "warm" for spare in self.status()["spares"]), "a warm spare", LONG)

    def losses_before(self, steps: int) -> dict[str, str]:
        """Return the script's output under torchrun, without the README's changes, in its first `steps` steps.

        It destroys its group and leaves without the interpreter's end, because torch may otherwise abort a process that ends while Gloo has
        a thread ("terminate called without an active exception").
        """
        script = self.folder.parent / "before.py"
        text = script_for_torchrun().replace("while step < 20_000", f"while step < {steps}")
        script.write_text(f"{text}\n{LEAVES}")
        return dict(LOSS.findall(self.runs(f"torchrun --standalone --nproc-per-node 4 {script}")))


def _words(command: str) -> list[str]:
    """The command, with the programs of this environment."""
    name, *rest = command.split()
    module = {"understudy": "understudy.cli", "torchrun": "torch.distributed.run"}[name]
    return [sys.executable, "-m", module, *rest]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with marked() as mark:
        yield Reader(tmp_path / "folder", mark)


def test_the_check(reader: Reader) -> None:
    printed = reader.runs(quickstart_commands()[0])
    assert printed.count("recovered in") >= len(PHASES) and has(printed, script_check.BITWISE, ranks=4), printed
    assert has(printed, script_check.NOTHING_TO_CHANGE), printed


@pytest.mark.gate
def test_the_job(reader: Reader) -> None:
    _, run, status, kill, *others, stop = quickstart_commands()
    assert (status, kill, stop) == ("understudy status", KILL, "understudy stop"), "the page has changed: adapt this test"
    job = reader.starts(run)

    def printed(text: str) -> bool:
        assert job.poll() is None, reader.output
        return text in reader.output

    wait_until(lambda: printed("step 100: "), "the first losses", LONG)
    reader.waits_for_a_warm_spare()
    reader.runs(status)
    send(pid_of(lambda: reader.status()["ranks"][2]), signal.SIGKILL)
    wait_until(lambda: printed(recoveries.INCIDENT_OVER.code), "the recovery", LONG)
    answers = {}
    for command in others:
        if "--rank" in command:  # a drill and a migration need one
            reader.waits_for_a_warm_spare()
        answers[command] = reader.runs(command)
    assert "Cause:" in answers["understudy explain US4150"]
    assert "incident 1: killed, rank 2" in answers["understudy report"], answers
    assert has(answers["understudy drill --rank 1 --wait"], asking.DRILL_PROVEN, rank=1), answers
    wait_until(lambda: reader.output.count(recoveries.INCIDENT_OVER.code) == 2, "the migration", LONG)
    reader.runs(stop)
    assert job.wait(LONG) == 143, reader.output

    losses = dict(LOSS.findall(reader.output))
    assert losses == reader.losses_before(100 * len(losses)), "the page promises the losses of the script under torchrun"

"""For tests that train: start the scripts in `jobs` with Understudy, with torchrun or with plain python, and read their records."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import Mark, marked, wait_until
from tests.references import FOLDER, OUTPUT, Run, undisturbed

from understudy.cli.client import Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY

JOBS = Path(__file__).with_name("jobs")
LONG = 240.0  # seconds; a job of these tests takes about ten
SHOWN = 5000  # characters of a job's output


@dataclass(frozen=True)
class Outcome:
    """The end of a job, and the records of its ranks: every line of their logs once, and their final states."""

    code: int
    output: str
    folder: Path

    @property
    def record(self) -> dict[str, list[str]]:
        found = {}
        for path in sorted(self.folder.glob("log-*.txt")):
            found[path.stem] = list(dict.fromkeys(path.read_text().splitlines()))
        for path in sorted(self.folder.glob("final-*.txt")):
            found[path.stem] = path.read_text().splitlines()
        return found

    @property
    def incidents(self) -> list[dict[str, Any]]:
        return list(self.ask("report")["incidents"])

    def ask(self, what: str) -> dict[str, Any]:
        """`understudy status --json` or `understudy report --json` about this job."""
        answer = understudy(what, "--json", "--run-dir", str(self.folder / "run"))
        assert answer.returncode == 0, answer.stderr
        found: dict[str, Any] = json.loads(answer.stdout)
        return found


def understudy(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "understudy.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, env={**os.environ, "COLUMNS": "200"})


class Started:
    """A job that is running."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text()

    def status(self) -> dict[str, Any]:
        """Return the status from its orchestrator itself, for repeated requests: a command takes a second of the processor. The job must
        run.
        """
        assert self.process.poll() is None, self.output
        found: dict[str, Any] = Server.of(RunDirectory(self.folder / "run")).call("GET", of_job(ONLY, "status"), limit=LONG)
        return found

    def wait_for(self, words: str, limit: float = LONG) -> None:
        """Until it has written them."""

        def has_written() -> bool:
            assert self.process.poll() is None, self.output
            return words in self.output

        wait_until(has_written, words, limit)

    def ends(self, limit: float = LONG) -> Outcome:
        code = self.process.wait(limit)
        return Outcome(code, self.output, self.folder)

    def succeeds(self, limit: float = LONG) -> Outcome:
        outcome = self.ends(limit)
        assert outcome.code == 0, outcome.output
        return outcome


class Training:
    """Start jobs, each in a separate folder below `folder`."""

    def __init__(self, folder: Path, mark: Mark) -> None:
        self._folder = folder
        self._mark = mark
        self.started: list[Started] = []

    def start(self, command: list[str], script: str, *arguments: str, **environment: str) -> Started:
        """Start a job. `script`: a file of `jobs`, or after "-m" a module there."""
        folder = self._folder / f"{len(self.started) + 1}"
        folder.mkdir()
        module = command[-1:] == ["-m"]
        if module:
            environment["PYTHONPATH"] = f"{JOBS}:{os.environ.get('PYTHONPATH', '')}"
        words = [*command, script if module else str(JOBS / script), str(folder), *arguments]
        words = [word.replace("FOLDER", str(folder)) for word in words]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                env=self._mark.environment(COLUMNS="200", **environment),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.started.append(Started(process, folder))
        return self.started[-1]

    def begin(self, script: str, *arguments: str, ranks: int = 2, spares: int = 1, faults: str = "", **environment: str) -> Started:
        flags = ["--nproc-per-node", str(ranks), "--spares", str(spares), "--no-replenish", "--run-dir", "FOLDER/run"]
        return self.start(["-m", "understudy.cli", "run", *flags], script, *arguments, FAULTS=faults, **environment)

    def run(self, script: str, *arguments: str, ranks: int = 2, spares: int = 1, faults: str = "") -> Outcome:
        """With Understudy."""
        return self.begin(script, *arguments, ranks=ranks, spares=spares, faults=faults).ends()

    @staticmethod
    def undisturbed(script: str, *arguments: str, ranks: int | None = 2, files: tuple[str, ...] = ()) -> Outcome:
        """Gives the run without Understudy's processes, which `tests.references` keeps. `ranks`: None runs it without torchrun, too.
        `files`: for which the script waits.
        """
        folder = undisturbed(Run(JOBS / script, (FOLDER, *arguments), ranks, files=files), LONG)
        return Outcome(0, (folder / OUTPUT).read_text(), folder)

    def torchrun(self, script: str, *arguments: str, ranks: int = 2, limit: float = LONG) -> Outcome:
        """Run a script without Understudy's processes, now. For runs that `undisturbed` cannot keep: with arguments that differ each time,
        such as the number of steps that a job has made, or files that a script finds.
        """
        flags = ["--standalone", "--nproc-per-node", str(ranks)]
        return self.start(["-m", "torch.distributed.run", *flags], script, *arguments).succeeds(limit)


def template_of(folder: Path, but: int = 0) -> int:
    """The pid of the template of the job in `folder`, once there is one other than `but`."""

    def found() -> int | None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_text()
                pid = int(path.parent.name)
                if "--template" in words and "template---" in words and f"\0{folder}\0" in words and pid != but:
                    return pid
        return None

    wait_until(found, "a template", LONG)
    pid = found()
    assert pid is not None
    return pid


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with marked() as mark:
        jobs = Training(tmp_path, mark)
        yield jobs
        for job in jobs.started:  # shown where the test has failed
            print(f"{job.folder} has written:\n{job.output[-SHOWN:]}")


def survived(outcome: Outcome, reference: Outcome, losses: int = 1, unseen: Mapping[str, int] = {}) -> list[dict[str, Any]]:
    """Asserts that the job lost ranks, and computed bit by bit what `reference` did. Gives its incidents.

    `unseen`: for each log, how many lines are missing there, because the call that would have returned them was rolled
    forward after its caller was lost.
    """
    assert outcome.code == 0, outcome.output
    found, expected = outcome.record, reference.record
    assert found.keys() == expected.keys()
    for name, lines in expected.items():
        there = set(found[name])
        kept = [line for line in lines if line in there]
        odd = [line for line in found[name] if line not in lines]
        assert kept == found[name], f"{name} differs: has {odd} of its own, in {outcome.folder}\n{outcome.output}"
        assert len(lines) - len(there) == unseen.get(name, 0), f"{name} is not complete\n{outcome.output}"
    incidents = outcome.incidents
    # Two in quick succession may be in one incident.
    assert losses in (len(incidents), sum(len(incident["ranks"]) for incident in incidents)), incidents
    for incident in incidents:
        assert incident["steps_lost"] == 0
        assert incident["seconds"] is not None
    return incidents

"""Start a job of the fault tests as a user would, and compare its results with an undisturbed run.

Everything is compared bitwise: the complete final state of each rank, and each line that each rank logged.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import references
from tests.integration.processes import Mark, send_to_group, wait_until
from tests.references import FOLDER, Run

from understudy.chaos.armed import Armed, Folder
from understudy.chaos.base import Value

ROOT = Path(__file__).parents[2]
JOB = ROOT / "tests" / "faults" / "jobs" / "train.py"
RANKS = range(4)
EVALUATE_EVERY = 3  # as in the job
LIMIT = 240.0  # seconds for a whole job; generous, because machines are slow and busy

Line = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """`action` of the registry, or of `jobs/fault_points.py`, at a `point` of `understudy.chaos.points` or of the script. `step`: once so
    many are committed; None: whenever the point is reached for the first time.
    """

    point: str
    rank: int
    step: int | None = None
    action: str = "sigkill"
    also: int | None = None  # this rank is killed at the same moment
    values: tuple[tuple[str, Value], ...] = ()  # parameters of the action

    @property
    def losses(self) -> int:
        return 0 if self.action == "gate" else 1 if self.also is None else 2


class Job:
    """A running or ended job.

    It has a spare for every planned loss, and none is replenished, because warming takes time from everything else; or
    else `spares`, which are.
    """

    def __init__(
        self,
        folder: Path,
        mark: Mark,
        mode: str,
        faults: tuple[Fault, ...] = (),
        *,
        spares: int | None = None,
        flags: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
        variables: dict[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.faults, self.mark = folder, faults, mark
        self.run_dir = folder / "run"
        command = [sys.executable, "-m", "understudy.cli", "run", "--drill", "off", "--nproc-per-node", str(len(RANKS))]
        exact = ["--spares", str(sum(fault.losses for fault in faults)), "--no-replenish"]
        command += exact if spares is None else ["--spares", str(spares)]
        command += ["--chaos", "--run-dir", str(self.run_dir), *flags]
        command += [str(JOB), "--out", str(folder), "--mode", mode, *arguments]
        self._waiting = Folder(self.run_dir)
        self._arm()
        self._environment = mark.environment(
            PYTHONPATH=f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", PYTHONWARNINGS="ignore", **(variables or {})
        )
        with (folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _arm(self) -> None:
        self.run_dir.mkdir()
        for number, fault in enumerate(self.faults):
            # Faults at one step happen in the order of the plan, or else one could keep another from ever being reached.
            same = [other for other in range(number) if self.faults[other].step == fault.step is not None]
            after = str(same[-1]) if same else ""
            action, values = fault.action, dict(fault.values)
            if action == "gate":
                values["file"] = str(self._gate(number))
            elif fault.also is not None:
                action, values["pids"] = "kill_both", str(self.folder / f"pids-{fault.also}.txt")
            self._waiting.arm(Armed(str(number), action, fault.rank, fault.point, fault.step, values, after))

    def _gate(self, number: int) -> Path:
        return self.folder / f"open-{number}"

    def end(self) -> None:
        if self.process.poll() is None:
            send_to_group(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def wait(self) -> int:
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end; its output ends with\n{self.output[-6000:]}") from None

    def wait_for_fault(self, fault: Fault) -> None:
        name = str(self.faults.index(fault))
        wait_until(lambda: self._waiting.has_fired(name) or self.process.poll() is not None, f"{fault}", LIMIT)
        assert self.process.poll() is None, self.output[-6000:]

    def open_gate(self, fault: Fault) -> None:
        self._gate(self.faults.index(fault)).touch()

    def ask(self, what: str) -> Any:
        """`understudy status` or `understudy report`, as JSON."""
        command = [sys.executable, "-m", "understudy.cli", what, "--json", "--run-dir", str(self.run_dir)]
        answer = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def command(self, *words: str) -> str:
        """Run another command about this job; return its output."""
        command = [sys.executable, "-m", "understudy.cli", *words, "--run-dir", str(self.run_dir)]
        answer = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout + answer.stderr

    def incidents(self) -> list[Line]:
        found: list[Line] = self.ask("report")["incidents"]
        return found

    def lines(self, rank: int) -> list[Line]:
        return lines(self.folder, rank)

    def state(self, rank: int) -> dict[str, str]:
        return state(self.folder, rank)

    def pids(self, rank: int) -> list[int]:
        """Return the pids of all workers that have had this rank, in order."""
        return [int(pid) for pid in (self.folder / f"pids-{rank}.txt").read_text().split()]

    def missed(self) -> list[Fault]:
        """Those that did not happen."""
        return [fault for number, fault in enumerate(self.faults) if not self._waiting.has_fired(str(number))]


def lines(folder: Path, rank: int) -> list[Line]:
    path = folder / f"log-{rank}.txt"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def state(folder: Path, rank: int) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / f"final-{rank}.json").read_text())
    return found


def undisturbed(mode: str, *arguments: str) -> Path:
    """Gives the folder of the same training under torchrun, without faults and without Understudy's processes (`tests.references`)."""
    return references.undisturbed(Run(JOB, ("--out", FOLDER, "--mode", mode, *arguments), len(RANKS)), LIMIT)


@dataclass
class Reference:
    """The results of the undisturbed run of a mode."""

    states: dict[int, dict[str, str]]
    lines: dict[int, list[Line]]

    @classmethod
    def of(cls, folder: Path) -> Reference:
        return cls({rank: state(folder, rank) for rank in RANKS}, {rank: lines(folder, rank) for rank in RANKS})


Places = set[tuple[int, str]]  # rank and logged place, as "step 5" or "evaluation 6"


def assert_identical(job: Job, reference: Reference, *, unlogged: Places | None = None, borrowed: Places | None = None) -> None:
    """Compare final states and losses, bit for bit, and check that every planned fault did happen.

    Lines that the logs may lack, and why; everything else is identical:

    `unlogged`: the rank's worker was lost after its vote. The step counts, but the worker that would have logged it is gone.
    `borrowed`: it was lost after that step was committed and before its iteration was over. The newcomer enters the
    iteration, where the step returns what it returned on another rank, and the incident says so.
    """
    assert job.wait() == 0, job.output[-6000:]
    assert job.missed() == []
    for rank in RANKS:
        assert job.state(rank) == reference.states[rank], f"rank {rank}"
    for rank in RANKS:
        _assert_same_lines(job, reference, rank, unlogged or set(), borrowed or set())


def _key(line: Line) -> str:
    return f"evaluation {line['evaluation']}" if "evaluation" in line else f"step {line['step']}"


def _assert_same_lines(job: Job, reference: Reference, rank: int, unlogged: Places, borrowed: Places) -> None:
    wanted = {_key(line): line for line in reference.lines[rank]}
    found = set()
    for line in job.lines(rank):
        key = _key(line)
        if (rank, key) in borrowed and line != wanted[key]:
            others = {other["own"] for r in RANKS for other in reference.lines[r] if _key(other) == key}
            assert line["own"] in others
            assert {**line, "own": ""} == {**wanted[key], "own": ""}, f"rank {rank}"
        else:
            assert line == wanted[key], f"rank {rank}"
            assert key not in found or (rank, key) in borrowed, f"rank {rank} logged {key} twice"
        found.add(key)
    assert wanted.keys() - found <= {key for r, key in unlogged if r == rank}, f"rank {rank}"


@dataclass(frozen=True)
class Outcome:
    """The expected result of one incident: the ranks lost in it, and the transaction where all ranks went on (one of a set)."""

    ranks: list[int]
    goes_on_at: set[int]
    decisions: frozenset[str] = frozenset({"redo", "roll forward"})


def in_step(step: int) -> int:
    """The number of the transaction that commits step `step` + 1."""
    return step + step // EVALUATE_EVERY


def in_evaluation(step: int) -> int:
    """Return the number of the evaluation's transaction after `step` committed steps."""
    return step + step // EVALUATE_EVERY - 1


def redone(rank: int, transaction: int) -> Outcome:
    """No rank can have committed it. Others may have been in the vote of the one before, which is then rolled forward."""
    return Outcome([rank], {transaction})


def counts(rank: int, transaction: int) -> Outcome:
    """It passed its vote on the lost rank, so it counts. Others may be in the next one already, which is then redone."""
    return Outcome([rank], {transaction + 1})


def either(rank: int, transaction: int) -> Outcome:
    """Whether it counts depends on how far the copies and the agreement had got. Both are right."""
    return Outcome([rank], {transaction, transaction + 1})


def assert_incidents(job: Job, *outcomes: Outcome, causes: set[str] | None = None) -> list[Line]:
    incidents = job.incidents()
    assert len(incidents) == len(outcomes), incidents
    for incident, outcome in zip(incidents, outcomes, strict=True):
        assert incident["decision"] in outcome.decisions, incident
        assert incident["transaction"] in outcome.goes_on_at, incident
        assert sorted(part["rank"] for part in incident["ranks"]) == sorted(outcome.ranks), incident
        assert incident["steps_lost"] == 0, incident
        assert incident["digests_verified"] > 0, incident
        assert incident["seconds"] is not None, incident
        assert {part["cause"] for part in incident["ranks"]} <= (causes or {"killed"}), incident
    return incidents


def assert_survivors_stayed(job: Job, losses: dict[int, int]) -> None:
    """Each rank had one worker more than it lost; ranks that were not lost keep their process."""
    held = {rank: len(job.pids(rank)) for rank in RANKS}
    assert held == {rank: 1 + losses.get(rank, 0) for rank in RANKS}
    now = {entry["rank"]: entry["pid"] for entry in job.ask("status")["ranks"]}
    assert now == {rank: job.pids(rank)[-1] for rank in RANKS}

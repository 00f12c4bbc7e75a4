"""Run a script: under torchrun, under `understudy run` with drills, and with kills. Real processes, and files about them.

Each run has its own folder: `trace` (the lines of the script, see `scripts/_trace.py`), `output.txt`, and the run directory `run`.
Kills are armed as files before the start (`understudy.chaos.armed`), so that no newcomer can be too early for one.

A run that does not end within its limit is ended by its process group, and processes elsewhere by its mark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.drills import PLACES, Drills, Place, around
from tests.conformance.scripts import Kill, Script
from tests.integration.processes import Mark, marked, send_to_group
from tests.references import FOLDER, OUTPUT, Run, kept
from understudy.chaos.armed import Armed, Folder
from understudy.common.names import JOURNAL
from understudy.core.events import WorkerLost
from understudy.core.model import LossCause
from understudy.messages import disputes
from understudy.orchestrator import journal, views

ROOT = Path(__file__).parents[2]
TRACE = "trace"
THREADS = "1"
FOR_A_RECOVERY = 15.0  # seconds that a run may take longer for each kill
FOR_A_DRILL = 30.0  # and for each drill
ABORTED = ("terminate called", "SIGABRT", "SIGSEGV", "Segmentation fault", "Fatal Python error")

HELD = (disputes.HELD.code, disputes.REDO_HELD.code)  # in the output of a job that waits for a person
LOOK = 0.5  # seconds between two looks whether the suite is being ended
ending = threading.Event()  # set: no run begins any more, and those that are under way are ended

Line = dict[str, Any]


class Ended(Exception):
    """The suite was ended in the middle of a run."""


@dataclass(frozen=True)
class Trace:
    """The lines that the ranks of a run wrote."""

    lines: Mapping[int, tuple[Line, ...]]
    finals: Mapping[int, Mapping[str, Any]]  # of ranks that came to the end

    @classmethod
    def of(cls, folder: Path, ranks: int) -> Trace:
        finals = {}
        for rank in range(ranks):
            path = folder / f"final-{rank}.json"
            if path.exists():
                finals[rank] = json.loads(path.read_text())
        return cls({rank: tuple(_lines(folder / f"lines-{rank}.jsonl")) for rank in range(ranks)}, finals)

    @property
    def steps(self) -> int:
        """The number of steps of which any rank wrote."""
        return max((len({line["key"] for line in lines if line["key"].startswith("step")}) for lines in self.lines.values()), default=0)


def _lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]  # else killed while it wrote it


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    trace: Trace
    code: int = 0
    output: str = ""
    hung: bool = False  # it did not end, and was ended
    kills: tuple[Kill, ...] = ()  # that struck
    incidents: Sequence[Mapping[str, Any]] = field(default=())  # as in `understudy report`
    crashes: tuple[str, ...] = ()  # deaths of workers by a signal of their own
    drills: Sequence[Mapping[str, Any]] = field(default=())  # as in `understudy status`, in their order

    @property
    def aborted(self) -> str:
        """A death in C++ by a signal that no process sent, in words; empty: none."""
        if self.crashes:
            return self.crashes[0]
        return next((line.strip() for line in self.output.splitlines() if any(word in line for word in ABORTED)), "")

    @property
    def held(self) -> str:
        """Why the job paused, for which the run was ended; empty: it did not."""
        return next((line.strip() for line in self.output.splitlines() if any(code in line for code in HELD)), "")

    @property
    def message(self) -> str:
        """The last message."""
        return next((line.strip() for line in reversed(self.output.splitlines()) if line.strip()), "no output")


def torchrun(script: Script, folder: Path) -> Ran:
    """Runs it now."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(script.ranks)]
    return _run(command, script, folder, script.limit)


class _Failed(Exception):
    def __init__(self, ran: Ran) -> None:
        super().__init__()
        self.ran = ran


def reference(script: Script) -> Ran:
    """Gives the run under torchrun that `tests.references` keeps. One that fails is not kept."""

    def compute(folder: Path) -> None:
        ran = torchrun(script, folder)
        if ran.hung or ran.code:
            raise _Failed(ran)

    variables = {"TRACE_OUT": f"{FOLDER}/{TRACE}", "OMP_NUM_THREADS": THREADS}
    try:
        folder = kept(Run(script.path.absolute(), script.arguments, script.ranks, variables).key, compute)
    except _Failed as failed:
        return failed.ran
    return Ran(Trace.of(folder / TRACE, script.ranks), output=(folder / OUTPUT).read_text(errors="replace"))


def understudy(script: Script, folder: Path, kills: tuple[Kill, ...] = (), places: Sequence[Place] | None = None) -> Ran:
    """With kills, or undisturbed but for drills (`drills`): at `places`, or between the kills, or at the usual ones."""
    folder.mkdir(parents=True, exist_ok=True)
    run_dir = folder / "run"
    run_dir.mkdir()
    command = [sys.executable, "-m", "understudy.cli", "run", "--drill", "off", "--nproc-per-node", str(script.ranks)]
    command += ["--chaos", "--run-dir", str(run_dir)]
    arm(kills, run_dir)
    places = places if places is not None else around(kills) if kills else PLACES
    with Drills(script, run_dir, places) as drills:
        limit = script.limit + FOR_A_DRILL * drills.number + FOR_A_RECOVERY * len(kills)
        return _run([*command, "--spares", str(max(1, len(kills)))], script, folder, limit, kills)


def arm(kills: tuple[Kill, ...], run_dir: Path) -> None:
    faults = Folder(run_dir)
    for number, kill in enumerate(kills):
        before = kills[number - 1] if number else None
        at_once = before is not None and (before.point, before.step) == (kill.point, kill.step)
        after = str(number - 1) if at_once or kill.of_newcomer else ""
        faults.arm(Armed(str(number), "sigkill", kill.rank, kill.point, None if kill.of_newcomer else kill.step, {}, after))


def _run(command: list[str], script: Script, folder: Path, limit: float, kills: tuple[Kill, ...] = ()) -> Ran:
    traces = folder / TRACE
    traces.mkdir(parents=True)
    output = folder / OUTPUT
    with marked() as mark:
        code = _code([*command, str(script.path.absolute()), *script.arguments], folder, output, _environment(mark, traces), limit)
    struck = tuple(kill for number, kill in enumerate(kills) if Folder(folder / "run").has_fired(str(number)))
    text = output.read_text(errors="replace")
    return Ran(Trace.of(traces, script.ranks), code or 0, text, code is None, struck, *_journalled(folder / "run"))


def _code(command: list[str], folder: Path, output: Path, environment: dict[str, str], limit: float) -> int | None:
    """None: it hung, or waits for a person."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    last = time.monotonic() + limit
    try:
        while not ending.is_set():
            with suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK)
            if time.monotonic() > last or any(code in output.read_text(errors="replace") for code in HELD):
                return None
        raise Ended
    finally:
        if process.poll() is None:
            send_to_group(process.pid, signal.SIGKILL)
            process.wait()


def _environment(mark: Mark, traces: Path) -> dict[str, str]:
    return mark.environment(
        PYTHONPATH=f"{ROOT / 'src'}:{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        PYTHONWARNINGS="ignore",
        OMP_NUM_THREADS=THREADS,
        TRACE_OUT=str(traces),
    )


def _journalled(run_dir: Path) -> tuple[Sequence[Mapping[str, Any]], tuple[str, ...], Sequence[Mapping[str, Any]]]:
    """Incidents, crashes and drills."""
    recorded = journal.read(run_dir / JOURNAL) if (run_dir / JOURNAL).exists() else None
    if recorded is None:
        return (), (), ()
    lost = [event for _, event in recorded.events if isinstance(event, WorkerLost) and event.cause is LossCause.CRASHED]
    machine = journal.replay(recorded.settings, recorded.events)
    crashes = tuple(f"worker {event.worker} died: {event.detail}" for event in lost)
    return views.report(machine)["incidents"], crashes, views.status(machine, {})["drills"]

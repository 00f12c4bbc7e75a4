"""Drills of a script: each in a job without kills, at chosen steps of chosen ranks.

The rank is held between two transactions (`understudy.chaos.armed`) until the spare is ready, however few steps the script has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.runs import _environment
from tests.conformance.scripts import Script
from tests.integration.processes import marked
from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.cli.client import Denied, NoAnswer, Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.common.names import JOURNAL
from understudy.links.messages import ONLY
from understudy.orchestrator import journal, views

LOOK = 0.05
PLACES = ((0, 1), (1, 3), (2, 6))  # rank, and committed steps before the step that is drilled


@dataclass
class Drilled:
    """The drills of one job, and how it ended."""

    drills: list[dict[str, Any]] = field(default_factory=list)
    code: int | None = None  # None: it hung
    output: str = ""

    @property
    def summary(self) -> str:
        found = [f"{drill['verdict']}@{drill['step']}:{drill['rank']}" for drill in self.drills]
        return ", ".join(found) or "none"


def run(script: Script, folder: Path, places: Sequence[tuple[int, int]] = PLACES) -> Drilled:
    run_dir, traces = folder / "run", folder / "trace"
    run_dir.mkdir(parents=True)
    traces.mkdir()
    armed = Folder(run_dir)
    holds = [Armed(f"drill-{number}", HOLD, rank, "between", step) for number, (rank, step) in enumerate(places) if rank < script.ranks]
    for hold in holds:
        armed.arm(hold)
    command = [sys.executable, "-m", "understudy.cli", "run", "--drill", "off", "--nproc-per-node", str(script.ranks)]
    command += ["--run-dir", str(run_dir)]
    command += ["--chaos", "--spares", "1", str(script.path.absolute()), *script.arguments]
    output = folder / "output.txt"
    with marked() as mark:
        with output.open("wb") as file:
            environment = _environment(mark, traces)
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        limit = time.monotonic() + script.limit + 30 * len(holds)
        try:
            for hold in holds:
                _drill(process, armed, hold, RunDirectory(run_dir), limit)
            process.wait(max(1.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            code = process.poll()
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    recorded = journal.read(run_dir / JOURNAL)
    drills = [] if recorded is None else list(views.status(journal.replay(recorded.settings, recorded.events), {})["drills"])
    return Drilled([dict(drill) for drill in drills], code, output.read_text(errors="replace"))


def _drill(process: subprocess.Popen[bytes], armed: Folder, hold: Armed, run: RunDirectory, limit: float) -> None:
    def waiting() -> bool:
        threading.Event().wait(LOOK)
        return process.poll() is None and time.monotonic() < limit

    try:
        while not armed.has_fired(hold.name):
            if not waiting():
                return
        number = None
        while number is None:
            if not waiting():
                return
            try:
                number = Server.of(run).call("POST", of_job(ONLY, "drill"), {"rank": hold.rank})["number"]
            except (Denied, NoAnswer):
                continue  # no spare is warm yet
        while _stage(run, number) not in ("computing", "over"):
            if not waiting():
                return
        armed.disarm(hold.name)
        while _stage(run, number) != "over":
            if not waiting():
                return
    finally:
        armed.disarm(hold.name)


def _stage(run: RunDirectory, number: int) -> str:
    try:
        drills = Server.of(run).call("GET", of_job(ONLY, "status"))["drills"]
    except (Denied, NoAnswer):
        return ""
    return str(next((drill["stage"] for drill in drills if drill["number"] == number), ""))


def main() -> None:
    from tests.conformance.scripts import FOLDER, read

    wanted, folder = sys.argv[2:], Path(sys.argv[1])
    for path in sorted(FOLDER.glob("[!_]*.py")):
        if wanted and path.stem not in wanted:
            continue
        found = run(read(path), folder / path.stem)
        details = "; ".join(f"{d['rank']}@{d['step']}: {d['detail']}" for d in found.drills if d["detail"])
        print(f"{path.stem}: code {found.code}: {found.summary} {details[:700]}", flush=True)


if __name__ == "__main__":
    main()

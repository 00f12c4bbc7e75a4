"""`python -m tests.drills faults`: every fault in every phase of a drill. `python -m tests.drills steps`: a drill at every step of scripts.

The exit code is 1 if training was harmed, or if a drill called a survivable script not survivable. `make drills` runs both;
`tests/integration/recovery/test_drill_faults.py` a diagonal of the first.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.conformance import scripts
from tests.drills import steps
from tests.drills.cells import FAULTS, PHASES, VICTIMS, Cell, cells
from tests.drills.faults import FaultsInDrills
from tests.integration.processes import marked
from tests.integration.training import Training

AT_MOST = 5  # faults in one job


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description="Faults in drills, and drills at every step.")
    parser.add_argument("what", nargs="?", choices=("faults", "steps"), help="default: both")
    parser.add_argument("--phases", default=",".join(PHASES), help="of the faults, with commas between them")
    parser.add_argument("--victims", default=",".join(VICTIMS), help="of the faults, with commas between them")
    parser.add_argument("--scripts", default=",".join(steps.SCRIPTS), help="of the conformance suite, with commas between them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for everything that was found")
    args = parser.parse_args()
    phases, victims, names = args.phases.split(","), args.victims.split(","), args.scripts.split(",")
    known = {script.name: script for script in scripts.find()}
    for given, there in ((phases, PHASES.keys()), (victims, VICTIMS), (names, known.keys())):
        if unknown := [name for name in given if name not in there]:
            parser.error(f"there is no {unknown[0]!r}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no job is left running
    found: dict[str, list[dict[str, Any]]] = {"faults": [], "steps": []}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="understudy-drills-") as scratch, Progress(*columns, console=Console(stderr=True)) as progress:
        if args.what != "steps":
            found["faults"] = faults([one for one in cells() if one.phase in phases and one.victim in victims], Path(scratch), progress)
        if args.what != "faults":
            found["steps"] = each_step([known[name] for name in names], Path(scratch), progress)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [result for results in found.values() for result in results if result["wrong"]]
    faulty, drilled = found["faults"], [drill for result in found["steps"] for drill in result["drills"]]
    print(f"{len(faulty)} faults in drills, {len(drilled)} drills in {len(found['steps'])} scripts, {len(wrong)} wrong")
    return 1 if wrong else 0


def faults(wanted: list[Cell], folder: Path, progress: Progress) -> list[dict[str, Any]]:
    """A job for each fault serves its phases, and its end is compared with torchrun's; no job has to bear an orchestrator that is killed
    more often than `understudy run` starts one again.
    """
    task = progress.add_task("faults in drills", total=len(wanted))
    found: list[dict[str, Any]] = []
    of_each = [[cell for cell in wanted if (cell.what, cell.victim) == fault] for fault in FAULTS]
    for number, own in enumerate(some[at : at + AT_MOST] for some in of_each for at in range(0, len(some), AT_MOST)):
        (folder / f"faults-{number}").mkdir()
        with marked() as mark:
            job = FaultsInDrills(Training(folder / f"faults-{number}", mark), mark)
            try:
                job.run(own, lambda result: progress.advance(task))
            except (AssertionError, ProcessLookupError, subprocess.TimeoutExpired) as error:
                job.results[-1].wrong = job.results[-1].wrong or f"the job came to harm, or its end is another: {error}"
        for result in job.results:
            said = f"{result.verdict}: {result.detail}" if result.detail else result.verdict
            progress.console.print(
                f"{result.cell.name}: {result.wrong or said}, {result.seconds:.1f} s", markup=False, highlight=False, soft_wrap=True
            )
        found += [result.values() for result in job.results]
    return found


def each_step(wanted: list[scripts.Script], folder: Path, progress: Progress) -> list[dict[str, Any]]:
    task = progress.add_task("a drill at every step", total=len(wanted))
    found = []
    for script in wanted:
        tried = steps.attempt(script, folder / script.name)
        said = ", ".join(f"{count} {name}" for name, count in tried.verdicts.items())
        progress.console.print(f"{script.name}: {said}; {tried.wrong or 'ok'}", markup=False, highlight=False, soft_wrap=True)
        progress.advance(task)
        found.append(tried.values())
    return found


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

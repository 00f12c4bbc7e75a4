"""`python -m tests.conformance`: what real training scripts do, one small script each, with kills, compared bit by bit with torchrun.

The exit code is 1 if a script does not come out as its header says. `make conformance` runs all of it and writes the page of results;
`tests/conformance/test_drawn.py` a few in each run of the gate.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from scripts.evidence import record as evidence

from tests.conformance import table
from tests.conformance.scripts import FOLDER, Script, find
from tests.conformance.suite import Result, everything
from tests.conformance.verdict import SKIPPED
from tests.parts import part_of

ROOT = Path(__file__).parents[2]  # of the project


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance", description="What real training scripts do, with kills, bit by bit."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts; default: all")
    parser.add_argument("--scripts", type=Path, default=FOLDER, metavar="FOLDER", help="where they are")
    parser.add_argument("--group", metavar="NAME", help="only scripts of this chapter, as frameworks")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts of them, each of which takes about as long")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="scripts that are tried at the same time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all results")
    parser.add_argument("--write", action="store_true", help="put each result into docs/evidence as it comes, with its commit")
    parser.add_argument(
        "--only-failed",
        type=Path,
        metavar="FILE",
        help="only what is wrong in this file, which --json wrote; the others' results are taken from it",
    )
    parser.add_argument("--no-alone", action="store_true", help="where a run with kills differs, do not look for the phase")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for output, traces and run directories of every run")
    args = parser.parse_args()
    try:
        known = find(args.scripts)
    except ValueError as error:
        parser.error(str(error))
    names = {script.name for script in known}
    if unknown := [name for name in args.names if name not in names]:
        parser.error(f"there is no script {unknown[0]!r} in {args.scripts}")
    wanted = [script for script in known if not args.names or script.name in args.names]
    wanted = [script for script in wanted if args.group in (None, script.group)]
    try:
        wanted = part_of(wanted, args.part)
    except ValueError as error:
        parser.error(f"--part: {error}")
    if args.write and args.scripts != FOLDER:
        parser.error("--write: scripts of the suite only")
    before: list[dict[str, Any]] = json.loads(args.only_failed.read_text()) if args.only_failed else []
    if before:
        failed = {result["script"] for result in before if result["wrong"]}
        wanted = [script for script in wanted if script.name in failed]
    if not wanted:
        parser.error("no script is left")
    if args.keep and (there := [script.name for script in wanted if (args.keep / script.name).exists()]):
        parser.error(f"{args.keep} holds runs of {there[0]} already: give another folder")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no run is left running
    with tempfile.TemporaryDirectory(prefix="understudy-conformance-") as scratch:
        results = _run(wanted, args.keep or Path(scratch), args)
    again = {result["script"]: result for result in results}
    results = [again.get(result["script"], result) for result in before] or results
    Console().print(table.shown(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(result["wrong"] for result in results) else 0


def _run(wanted: list[Script], folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        total = progress.add_task("conformance", total=len(wanted))
        tasks: dict[str, TaskID] = {}

        def say(script: Script, what: str) -> None:
            text = f"{script.name} {what}"
            if script.name not in tasks:
                tasks[script.name] = progress.add_task(text, total=None)
            progress.update(tasks[script.name], description=text)

        commit = evidence.commit()  # before the first result changes files

        def done(result: Result) -> None:
            if args.write and result.found.verdict != SKIPPED:
                table.record(table.elsewhere([result.values()], folder, ROOT), commit, {script.name for script in find(FOLDER)})
            if result.script.name in tasks:
                progress.remove_task(tasks.pop(result.script.name))
            progress.advance(total)
            head, color = (
                ("WRONG", "red") if result.wrong else ("skipped", "yellow") if result.found.verdict == SKIPPED else ("ok", "green")
            )
            progress.console.print(f"[{color}]{head}[/] {result.script.name}: ", end="")
            progress.console.print(result.wrong or result.found.text, markup=False, highlight=False, soft_wrap=True)

        results = everything(wanted, folder, args.at_once, say, done, not args.no_alone, bool(args.keep))
    return table.elsewhere([result.values() for result in results], folder, ROOT)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

"""`python -m tests.matrix`: every fault of `understudy chaos` in every phase of a step and of a recovery, in every way to be parallel.

Each cell is a fault that strikes a real job in this phase. Its outcome must be the registry's, the journal must be allowed by
the model, and after every step the state of every rank must be, bit by bit, that of the undisturbed run under torchrun. `make matrix` runs
all of it; `covering` chooses the rows of the gate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.evidence.record import record

from tests.integration.processes import Mark, marked
from tests.matrix.cells import PARALLEL, PHASES, Cell, cells
from tests.matrix.results import Result, outcomes, summary, table
from tests.matrix.run import Finished, compare, run, undisturbed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description="Every fault in every phase in every way to be parallel.")
    parser.add_argument("--modes", default=",".join(PARALLEL), help="ways to be parallel, with commas between them")
    parser.add_argument("--phases", default=",".join(PHASES), help="with commas between them")
    parser.add_argument("--faults", default="", help="with commas between them; default: all of the registry")
    parser.add_argument("--at-once", type=int, default=2, help="jobs that run at the same time")
    parser.add_argument("--json", type=Path, help="file for every cell")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--write", action="store_true", help="put the outcomes of all cells into docs/evidence/proof.json and its page")
    parser.add_argument("--keep", type=Path, help="folder for the jobs' logs and run directories")
    args = parser.parse_args()
    modes, phases = args.modes.split(","), args.phases.split(",")
    for names, known in ((modes, PARALLEL), (phases, PHASES)):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    faults = args.faults.split(",") if args.faults else []
    wanted = [cell for mode in modes for cell in cells(mode)]
    wanted = [cell for cell in wanted if cell.phase in phases and (not faults or cell.fault in faults)]
    if not wanted:
        parser.error("no cell is left")
    if args.write and (faults or set(modes) != set(PARALLEL) or set(phases) != set(PHASES)):
        parser.error("--write: with all cells only")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no job is left behind
    with tempfile.TemporaryDirectory() as scratch, marked() as mark:
        results = everything(wanted, args.keep or Path(scratch), mark, args.at_once)
    print(table(results))
    print(summary(results))
    if args.markdown:
        args.markdown.write_text(f"{table(results)}\n{summary(results)}.\n")
    if args.write:
        columns, rows, reasons = outcomes(results)
        record("proof", "matrix", rows, columns, summary(results), {"reasons": reasons})
    if args.json:
        args.json.write_text(json.dumps([result.values() for result in results], indent=1) + "\n")
    return 1 if any(result.wrong for result in results) else 0


def everything(wanted: list[Cell], folder: Path, mark: Mark, at_once: int) -> list[Result]:
    """Gives the results in the order of the cells."""
    tried = [cell for cell in wanted if not cell.why_not]
    began, lock, count = time.monotonic(), threading.Lock(), itertools.count(1)

    def tell(result: Result) -> None:
        with lock:
            lasted = f" in {result.seconds:.2f} s" if result.seconds is not None else ""
            head = f"[{time.monotonic() - began:5.0f} s, {next(count)} of {len(tried)}]"
            print(f"{head} {result.cell.name}: {result.text}{lasted}", flush=True)

    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in tried:
        groups.setdefault((cell.mode, "" if len(tried) < 50 else cell.phase, cell.flags), []).append(cell)

    def work(number: int, group: list[Cell]) -> list[Finished]:
        return run(group, folder / f"{number}", mark, tell)

    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(work, range(len(groups)), groups.values()))
        finished = {mode: [job for (of, *_), jobs in zip(groups, found, strict=True) if of == mode for job in jobs] for mode in PARALLEL}
        finished = {mode: jobs for mode, jobs in finished.items() if jobs}
        steps = {mode: max(job.steps for job in jobs) for mode, jobs in finished.items()}
        references = dict(zip(steps, pool.map(lambda mode: undisturbed(mode, steps[mode]), steps), strict=True))
    results = {}
    for mode, jobs in finished.items():
        for job in jobs:
            compare(job, references[mode])
            results.update({result.cell.name: result for result in job.results})
    return [results.get(cell.name) or Result(cell) for cell in wanted]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

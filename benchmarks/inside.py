"""Measure the part of a rank's step that Understudy takes, in the rank: processor time of the main thread outside the script's step
function.

    python benchmarks/inside.py --launches 5 --ranks 2,4 --steps 100
    python benchmarks/inside.py --model small --ranks 2,4,8,16,32      how it grows with the ranks
    python benchmarks/inside.py --model tiny --wait 100 --ranks 2      a step that waits, as for an accelerator, instead of computing

Two runs of one training differ by more than a percent in their step's own time, so step times of two runs cannot show a smaller difference.
The time outside of the function can be measured directly: under torchrun it is the data loader, under Understudy also the copies, the
hand-over, the vote and the commit. All are launched in turns. A step's figure is the median or the mean over the steps of a run, ranks
taken together, and the printed figure is the median over launches, with the lowest and the highest; the mean includes the comparisons of
the whole state, the median does not.

The floor is that of a job of torchrun that does what a redo and a vote need at least, in its plainest form (`inside_entry.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import evidence
from recovery import MODELS, machine
from understudy.worker.verification.comparison import EVERY

ENTRY = Path(__file__).with_name("inside_entry.py")
SIZES = {**MODELS, "tiny": ["--layers", "1", "--width", "16", "--heads", "2", "--context", "8"]}  # small enough to leave the caches alone
SYSTEMS = ("understudy", "torchrun", "floor")
SKIP = 20  # first steps of a run: buckets, optimizer state, caches

Run = dict[str, float]  # microseconds


def launch(system: str, ranks: int, args: argparse.Namespace, folder: Path) -> Run:
    """Run one system once."""
    folder.mkdir(parents=True)
    script = [str(ENTRY), str(folder), system, str(args.wait), "--steps", str(args.steps), "--log-every", "100000", *SIZES[args.model]]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    if system == "understudy":
        command = [sys.executable, "-m", "understudy.cli", "run", "--drill", "off", "--run-dir", str(folder / "run"), "--spares", "1"]
        command += ["--nproc-per-node", str(ranks), "--compare-every", str(args.compare_every)]
    limits = {"MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "33554432"}  # as in `overhead.py`
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **limits}
    done = subprocess.run([*command, *script], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{system} with {ranks} ranks ended with code {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    found = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]
    cycles = [cycle for one in found for cycle in one["cycles"][SKIP:]]
    inside = [inside for one in found for inside in one["inside"][SKIP : len(one["cycles"])]]
    outside = [cycle - part for cycle, part in zip(cycles, inside, strict=True)]
    floors = {way: [took for one in found for took in one[way][SKIP:]] for way in ("least", "gloo")}
    return {
        "step": statistics.median(cycles) / 1000 + 1000 * args.wait,
        "inside": statistics.median(inside) / 1000,
        "outside": statistics.median(outside) / 1000,
        "mean": statistics.mean(outside) / 1000,
        "noting": statistics.median([took for one in found for took in one["noting"][SKIP:]]) / 1000,
        **{way: statistics.median(floor) / 1000 if floor else 0.0 for way, floor in floors.items()},
    }


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor time of a rank's main thread outside its step function, per step.")
    parser.add_argument("--launches", type=int, default=3, help="runs of each system")
    parser.add_argument("--steps", type=int, default=100, help="of each run")
    parser.add_argument("--model", default="default", choices=sorted(SIZES))
    parser.add_argument("--wait", type=int, default=0, help="milliseconds in every step, before the vote")
    parser.add_argument("--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[4], help="by comma (4)")
    parser.add_argument("--compare-every", type=int, default=EVERY, help="as of `understudy run`")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "inside")
    args = parser.parse_args()
    if args.launches < 1 or args.steps <= SKIP + 1:
        parser.error(f"at least one launch of more than {SKIP + 1} steps")
    console, results = Console(width=160), []
    columns = ["ranks", "step", "outside: torchrun", "outside: understudy", "understudy's part", "the same, mean", "of the step"]
    columns += ["of it for collectives", "floor", "over the floor", "two sums by Gloo"]
    table = Table(*columns, title=f"{args.model} model, {args.launches} launches of {args.steps} steps; microseconds of processor time")
    with tempfile.TemporaryDirectory() as temporary:
        turns = [(ranks, number, system) for ranks in args.ranks for number in range(args.launches) for system in SYSTEMS]
        runs: dict[tuple[int, str], list[Run]] = {}
        for ranks, number, system in track(turns, "training", console=Console(stderr=True)):
            run = launch(system, ranks, args, Path(temporary, f"{ranks}-{number}-{system}"))
            runs.setdefault((ranks, system), []).append(run)
        for ranks in args.ranks:
            ours, theirs, floor = (runs[ranks, system] for system in SYSTEMS)
            part = [a["outside"] - b["outside"] for a, b in zip(ours, theirs, strict=True)]
            mean = [a["mean"] - b["mean"] for a, b in zip(ours, theirs, strict=True)]
            step = statistics.median(run["step"] for run in theirs)
            share = f"{statistics.median(part) / step:.2%}, mean {statistics.median(mean) / step:.2%}"
            outside = [spread([run["outside"] for run in side]) for side in (theirs, ours)]
            noting = spread([run["noting"] for run in ours])
            floors = [spread([run[way] for run in floor]) for way in ("least", "gloo")]
            over = statistics.median(part) / statistics.median(run["least"] for run in floor)
            table.add_row(
                str(ranks), f"{step:.0f}", *outside, spread(part), spread(mean), share, noting, floors[0], f"{over:.2f}", floors[1]
            )
            results.append({"ranks": ranks, "understudy": ours, "torchrun": theirs, "floor": floor})
    console.print(table)
    if args.write:
        evidence.write_table(args.write, table)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "arguments": vars(args), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

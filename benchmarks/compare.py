"""Compare Understudy with its alternatives: the same training, the same faults at the same places, one system after the other.

    python benchmarks/compare.py                                              all systems, 10 M parameters, 4 ranks, 3 faults, 3 repeats
    python benchmarks/compare.py --systems ideal,restart,understudy           without `make peers`
    python benchmarks/compare.py --model 1M,10M,100M --ranks 2,4,8 --plots docs/images

A run is a whole training of one system. In it, `--faults` workers are killed (SIGKILL) one after the other, each at a place that is the
same for every system: when all ranks have committed a certain step, a certain part of a step later, a certain rank. A fault waits until the
job has recovered from the last one. The parameters at the end are compared bit by bit with those of the ideal run, which is plain torchrun
without faults. In each repeat all systems run, in an order that changes, so that a machine that gets slower does so for all of them; ratios
are to the ideal run of the same repeat.

Before the repeats a run without faults measures how long a step takes and what a distributed checkpoint costs. From these follow the number
of steps (`--between` seconds of training before, between and after the faults) and the tuned interval between checkpoints
(peers/interval.py).

Columns: *fault to full strength*, from right before the signal to the first step that all ranks have committed, with the lost rank in
another process; *in its own steps*, the same over a steady step of the same run; *to a new step*, the same for a step beyond the last one
that any rank had committed; *pause*, the longest time around the fault in which no rank committed a new step, less a steady step; *steps
redone*, attempts at steps that the same rank had begun before; *batches dropped*, batches of single ranks that no committed step
contains; *MiB per rank*, proportional set size of a worker (median), and of all processes of the job, for each rank; *step*, the median
without the first steps of a run and after a fault; *completion*, from the first step of all ranks to the last one; *goodput*, batches
that count, per second. Entries are the median, with the lowest and the highest value of all faults or runs.

Systems, in the order of the table:
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import evidence

sys.path.insert(0, str(Path(__file__).resolve().parent))  # also when it is imported from elsewhere

from peers import measures, tables
from peers.interval import steps_between
from peers.observe import Observed, adopt_orphans, observe, places
from peers.sizes import SIZES, choice
from peers.systems import SYSTEMS, System, Training
from recovery import machine

MIB = 1 << 20
CALIBRATION = 28  # steps
CALIBRATION_EVERY = 3  # steps between its checkpoints


class Comparison:
    """All runs of one model with one number of ranks."""

    def __init__(self, args: argparse.Namespace, model: str, ranks: int, folder: Path, systems: list[str]) -> None:
        self.args, self.folder, self.systems = args, folder, systems
        self.base = Training(model, ranks, CALIBRATION, args.seed, args.batch, args.faults, args.usual, CALIBRATION_EVERY)
        self.calibration: dict[str, float] = {}
        self.figures = {name: tables.Figures() for name in systems}
        self.record: list[dict[str, Any]] = []

    def title(self) -> str:
        return f"{SIZES[self.base.model].parameters() / 1e6:.1f} M parameters, {self.base.ranks} ranks"

    def calibrate(self) -> Training:
        """Return the training of the repeats, from a calibration run."""
        name = "restart-tuned"
        system = SYSTEMS[name](self.base, self.folder / "calibration")
        reader, observed = observe(system, 0.0, False, self.tell("calibration"))
        if observed.problem:
            raise SystemExit(f"{name} does not run here: {observed.problem}")
        step, cost = measures.checkpoint_cost(reader.lines, self.base.ranks, self.base.tuned)
        tuned = steps_between(cost, self.args.between, step)
        total = self.args.steps or max(8, round((self.args.faults + 1) * self.args.between / step))
        self.calibration = {"step": step, "checkpoint": cost}
        print(
            f"{self.title()}: a step takes {step * 1000:.0f} ms, a distributed checkpoint {cost:.3f} s: best every {tuned} steps "
            f"for a fault every {self.args.between:g} s (the usual one: every {self.args.usual}); {total} steps"
        )
        return replace(self.base, steps=total, tuned=tuned)

    def repeat(self, number: int, training: Training) -> None:
        order = self.systems.copy()
        random.Random(f"{self.args.seed} {number}").shuffle(order)
        runs: dict[str, tuple[measures.Run, Observed]] = {}
        for place, name in enumerate(order, 1):
            system = SYSTEMS[name](training, self.folder / f"repeat-{number}" / name)
            tell = self.tell(f"repeat {number}/{self.args.repeats}, {place}/{len(order)} {name}")
            reader, observed = observe(system, self.calibration["step"], name != "ideal", tell, self.args.limit)
            runs[name] = measures.measure(reader.lines, observed.faults, training.ranks, training.steps), observed
            self.keep(number, system, *runs[name])
        ideal = runs["ideal"][0]
        for name, (run, observed) in runs.items():
            self.add(self.figures[name], run, observed, ideal, training)

    def add(self, figures: tables.Figures, run: measures.Run, observed: Observed, ideal: measures.Run, training: Training) -> None:
        for one in run.recoveries:
            figures.full += [one.full] if one.full is not None else []
            figures.own += [one.full / run.steady] if one.full is not None else []
            figures.new += [one.new] if one.new is not None else []
            figures.pause += [one.pause] if one.pause is not None else []
            figures.redone.append(one.redone)
            figures.unrecovered += one.full is None
        if observed.memory:
            figures.worker.append(observed.memory.worker / MIB)
            figures.job.append(observed.memory.job / MIB / training.ranks)
        if not math.isnan(run.steady):
            figures.steady.append(run.steady)
            figures.steady_ratio.append(run.steady / ideal.steady)
        if observed.problem:
            figures.problems.append(observed.problem)
            return
        figures.dropped.append(run.dropped)
        figures.bitwise.append(run.digests == ideal.digests)
        if run.seconds is not None and ideal.seconds is not None:
            figures.completion.append(run.seconds / ideal.seconds)
        good = measures.goodput(run, ideal, training.ranks, training.steps)
        figures.goodput += [good] if good is not None else []

    def keep(self, number: int, system: System, run: measures.Run, observed: Observed) -> None:
        self.record.append({"repeat": number, "system": system.name, "run": asdict(run), "observed": asdict(observed)})
        if not self.args.keep:
            shutil.rmtree(system.folder)

    def tell(self, what: str) -> Any:
        return lambda text: print(f"[{time.strftime('%H:%M:%S')}] {self.title()}: {what}: {text}", flush=True)


def arguments() -> argparse.Namespace:
    about = "\n".join(f"  {name:20}{system.about}" for name, system in SYSTEMS.items())
    parser = argparse.ArgumentParser(description=f"{__doc__}\n{about}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=lambda text: choice(text, SYSTEMS), default=list(SYSTEMS), help="by comma; the ideal always runs")
    parser.add_argument("--model", type=lambda text: choice(text, SIZES), default=["10M"], help=f"by comma: {', '.join(SIZES)}")
    parser.add_argument("--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[4], help="by comma")
    parser.add_argument("--batch", type=int, default=1, help="windows of 64 bytes per rank and step; more make longer steps (1)")
    parser.add_argument("--faults", type=int, default=3, help="in each run (3)")
    parser.add_argument("--repeats", type=int, default=3, help="of all systems (3)")
    parser.add_argument("--between", type=float, default=10.0, help="seconds of training between faults (10)")
    parser.add_argument("--steps", type=int, default=0, help="of a run, instead of what follows from --between")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a run is given up (600)")
    parser.add_argument("--usual", type=int, default=10, help="steps between the usual checkpoints (10)")
    parser.add_argument("--seed", type=int, default=0, help="of parameters, data and places (0)")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "compare-later")
    parser.add_argument("--plots", default="", help="folder for plots")
    parser.add_argument("--keep", default="", help="folder for logs and outputs of all runs; default: none are kept")
    args = parser.parse_args()
    if args.repeats < 1 or args.faults < 1 or min(args.ranks) < 2:
        parser.error("at least one repeat, one fault and two ranks")
    return args


def plot(comparisons: list[Comparison], folder: Path) -> None:
    from peers import plots

    folder.mkdir(parents=True, exist_ok=True)
    for one in comparisons:
        plots.recoveries(one.figures, one.title(), folder / f"compare-{one.base.model}-{one.base.ranks}.svg")
    for what, x in (("model", "parameters"), ("ranks", "ranks")):
        curves: dict[str, list[tuple[float, float]]] = {}
        for one in comparisons:
            at = float(SIZES[one.base.model].parameters() if what == "model" else one.base.ranks)
            fixed = f"{one.base.ranks} ranks" if what == "model" else one.base.model
            for name, figures in one.figures.items():
                if figures.full and not SYSTEMS[name].planned:
                    curves.setdefault(f"{name}, {fixed}", []).append((at, statistics.median(figures.full)))
        if any(len(points) > 1 for points in curves.values()):
            plots.growth(curves, x, folder / f"compare-{what}.svg")


def main() -> None:
    args = arguments()
    adopt_orphans()
    names = list(dict.fromkeys(["ideal", *(name for name in SYSTEMS if name in args.systems)]))
    cannot = {name: reason for name in names if (reason := SYSTEMS[name].why_not())}
    systems = [name for name in names if name not in cannot]
    versions = {name: SYSTEMS[name].version() for name in systems}
    for name, text in {**versions, **{name: f"left out: {reason}" for name, reason in cannot.items()}}.items():
        print(f"{name}: {text}")
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-compare-")).absolute()
    comparisons: list[Comparison] = []
    try:
        for model in args.model:
            for ranks in args.ranks:
                one = Comparison(args, model, ranks, folder / f"{model}-{ranks}", systems)
                comparisons.append(one)
                training = one.calibrate()
                print("faults: " + "; ".join(f"step {place.step} + {place.part:.2f}, rank {place.rank}" for place in places(training)))
                for number in range(1, args.repeats + 1):
                    one.repeat(number, training)
                    print(f"\n{one.title()}, {args.faults} faults in {training.steps} steps, after {number} repeats:\n")
                    print(tables.table(one.figures, cannot) + "\n", flush=True)
                if args.write:
                    evidence.write_table(args.write, tables.table(one.figures, cannot))
    finally:
        if args.json:
            results = [
                {
                    "title": one.title(),
                    "calibration": one.calibration,
                    "runs": one.record,
                    "figures": {k: asdict(v) for k, v in one.figures.items()},
                }
                for one in comparisons
            ]
            about = {"machine": machine(), "versions": versions, "cannot": cannot, "arguments": vars(args)}
            Path(args.json).write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if args.plots:
        plot(comparisons, Path(args.plots))


if __name__ == "__main__":
    main()

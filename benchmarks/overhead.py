"""What Understudy costs while nothing fails: step time under `understudy run` against plain torchrun, same script.

    python benchmarks/overhead.py --pairs 5 --steps 80 --json overhead.json

Runs come in pairs and change places from pair to pair (A B, B A, A B, ...), so that a machine that drifts drifts for
both. A run has two figures, both without its first steps: the median time of its steps, and the processor time per step
of all its processes together (workers, spare, and whatever started them), which other work on the machine disturbs much
less. A pair's figure is the ratio of its two runs; the result is the median of the ratios, with the smallest and the
largest: where these stand on both sides of 1, the difference is smaller than what this machine can show. A spare is kept
warm meanwhile, as in real use.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from recovery import MODELS, ROOT, machine

sys.path.insert(0, str(ROOT / "examples"))

from running import SCRIPT, Metrics, RunningJob

SKIP = 15  # first steps of a run: buckets, optimizer state, caches
LIMIT = 1800.0  # seconds for one run


@dataclass(frozen=True)
class Figures:
    """Of one run, in seconds."""

    step: float
    processor: float


def under_understudy(folder: Path, arguments: list[str], args: argparse.Namespace) -> Figures:
    with RunningJob(folder, arguments, ranks=args.ranks, spares=args.spares) as job:
        processor = processor_time(job.process, job.metrics, args.steps)
        code = job.process.wait(LIMIT)
    if code:
        raise SystemExit(f"understudy run ended with code {code}:\n{job.output()}")
    return Figures(median_step(job.metrics), processor)


def under_torchrun(folder: Path, arguments: list[str], args: argparse.Namespace) -> Figures:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks)]
    command += [str(SCRIPT), *arguments, "--metrics", str(folder / "metrics-{rank}.jsonl")]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # torchrun's own default, without its warning
    metrics = Metrics(folder, args.ranks)
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        processor = processor_time(process, metrics, args.steps)
        code = process.wait(LIMIT)
    finally:
        process.terminate()
        process.wait()
    if code:
        raise SystemExit(f"torchrun ended with code {code}:\n{(folder / 'output.log').read_text(errors='replace')[-3000:]}")
    return Figures(median_step(metrics), processor)


def processor_time(process: subprocess.Popen[bytes], metrics: Metrics, steps: int) -> float:
    """Seconds of processor time per step of the process and of all below it, between the first steps and the last."""

    def reached(step: int) -> tuple[int, float]:
        """Once all ranks have reported `step`: the step that they have, and the time used up to there."""
        while (done := max(metrics.complete(), default=0)) < step:
            if process.poll() is not None:
                raise SystemExit(f"the run ended with code {process.returncode} at step {done}")
            time.sleep(0.2)
            metrics.refresh()
        top = psutil.Process(process.pid)
        times = [one.cpu_times() for one in (top, *top.children(recursive=True))]
        return done, sum(spent.user + spent.system for spent in times)

    first, before = reached(SKIP)
    last, after = reached(steps - 3)
    return (after - before) / (last - first)


def median_step(metrics: Metrics) -> float:
    metrics.refresh()
    return statistics.median(metrics.step_seconds(skip=SKIP))


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Step time under understudy run against plain torchrun.")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--parallel", default="ddp", choices=("ddp", "hsdp", "tp"))
    parser.add_argument("--model", default="default", choices=sorted(MODELS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--json", default="", help="file for all figures")
    args = parser.parse_args()
    if args.steps < SKIP + 10:
        parser.error(f"--steps must be at least {SKIP + 10}: the first {SKIP} are left out")
    arguments = ["--steps", str(args.steps), "--parallel", args.parallel, "--log-every", "1000", *MODELS[args.model]]
    pairs: list[tuple[Figures, Figures]] = []
    folder = Path(tempfile.mkdtemp(prefix="understudy-benchmark-"))
    try:
        for number in range(args.pairs):
            ours, plain = folder / f"understudy-{number}", folder / f"torchrun-{number}"
            if number % 2 == 0:
                a = under_understudy(ours, arguments, args)
                b = under_torchrun(plain, arguments, args)
            else:
                b = under_torchrun(plain, arguments, args)
                a = under_understudy(ours, arguments, args)
            pairs.append((a, b))
            print(
                f"pair {number + 1}: step {a.step:.4f} s with understudy, {b.step:.4f} s with torchrun, ratio {a.step / b.step:.4f}; "
                f"processor time per step {a.processor:.4f} s, {b.processor:.4f} s, ratio {a.processor / b.processor:.4f}",
                flush=True,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{args.parallel}, {args.model} model, {args.ranks} ranks, medians of {len(pairs)} pairs:")
    result: dict[str, Any] = {"machine": machine(), "arguments": vars(args), "pairs": [[asdict(a), asdict(b)] for a, b in pairs]}
    for name, what in (("step", "step"), ("processor", "processor time per step")):
        times = [(float(getattr(a, name)), float(getattr(b, name))) for a, b in pairs]
        ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = result[f"{name} ratio"] = spread([a / b for a, b in times])
        print(
            f"{what} {ours * 1000:.1f} ms with understudy, {theirs * 1000:.1f} ms with torchrun; "
            f"ratio {ratio['median']:.4f} ({ratio['min']:.4f} to {ratio['max']:.4f})"
        )
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

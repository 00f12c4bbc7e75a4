"""What Understudy costs while nothing fails: step time under `understudy run` against plain torchrun, same script.

    python benchmarks/overhead.py --pairs 5 --steps 80 --json overhead.json

Runs come in pairs and change places from pair to pair (A B, B A, A B, ...), so that a machine that drifts drifts for
both. A run's figure is the median time of its steps without the first ones; a pair's figure is the ratio of its two
runs; the result is the median of the ratios, with the smallest and the largest: where these stand on both sides of 1,
the difference is smaller than what this machine can show. A spare is kept warm meanwhile, as in real use.
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
from pathlib import Path

from recovery import MODELS, ROOT, machine

sys.path.insert(0, str(ROOT / "examples"))

from running import SCRIPT, Metrics, RunningJob

SKIP = 15  # first steps of a run: buckets, optimizer state, caches
LIMIT = 1800.0  # seconds for one run


def under_understudy(folder: Path, arguments: list[str], args: argparse.Namespace) -> float:
    """The median step time of one run, in seconds."""
    with RunningJob(folder, arguments, ranks=args.ranks, spares=args.spares) as job:
        code = job.process.wait(LIMIT)
    if code:
        raise SystemExit(f"understudy run ended with code {code}:\n{job.output()}")
    return median_step(job.metrics)


def under_torchrun(folder: Path, arguments: list[str], args: argparse.Namespace) -> float:
    """The same with torchrun."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks)]
    command += [str(SCRIPT), *arguments, "--metrics", str(folder / "metrics-{rank}.jsonl")]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}  # torchrun's own default, without its warning
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    if done.returncode:
        raise SystemExit(f"torchrun ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    return median_step(Metrics(folder, args.ranks))


def median_step(metrics: Metrics) -> float:
    metrics.refresh()
    return statistics.median(metrics.step_seconds(skip=SKIP))


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
    pairs: list[tuple[float, float]] = []
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
            print(f"pair {number + 1}: understudy {a:.4f} s, torchrun {b:.4f} s, ratio {a / b:.4f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratios = [a / b for a, b in pairs]
    print(
        f"{args.parallel}, {args.model} model, {args.ranks} ranks: median step "
        f"{statistics.median(a for a, _ in pairs) * 1000:.1f} ms with understudy, "
        f"{statistics.median(b for _, b in pairs) * 1000:.1f} ms with torchrun; "
        f"ratio {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f} over {len(pairs)} pairs)"
    )
    if args.json:
        result = {
            "machine": machine(),
            "arguments": vars(args),
            "pairs": [{"understudy": a, "torchrun": b, "ratio": a / b} for a, b in pairs],
            "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
        }
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

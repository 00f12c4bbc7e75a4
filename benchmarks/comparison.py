"""What a comparison of replicas costs: the same job with one in every step and with none.

    python benchmarks/comparison.py --pairs 10 --steps 8 --json comparison.json

Two jobs under `understudy run` take turns as in `overhead.py`, one with `--compare-every 1`, the other with `--compare-every 0`. What they
differ in, in processor time of all processes for a step, is what one comparison costs; with `--compare-every N` a step pays an N-th of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from overhead import SKIP, Side, spread
from recovery import MODELS, machine
from running import RunningJob


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor time and step time with a comparison of replicas in every step.")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8, help="steps of one turn")
    parser.add_argument("--parallel", default="ddp", choices=("ddp", "hsdp", "tp"))
    parser.add_argument("--model", default="default", choices=sorted(MODELS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--json", default="", help="file for all figures")
    args = parser.parse_args()
    if args.pairs < 2 or args.steps < 1:
        parser.error("at least two pairs of one step each")
    arguments = ["--steps", "1000000", "--parallel", args.parallel, "--log-every", "1000", *MODELS[args.model]]
    folder = Path(tempfile.mkdtemp(prefix="understudy-benchmark-"))
    pairs: list[tuple[float, float]] = []
    used: list[tuple[float, float]] = []  # processor seconds for a step
    try:
        with ExitStack() as stack:
            sides = []
            for every in ("1", "0"):
                options = ("--compare-every", every)
                job = stack.enter_context(RunningJob(folder / every, arguments, ranks=args.ranks, spares=0, options=options))
                side = Side(f"every {every}", job.process, job.metrics, folder / every / "output.log")
                stack.callback(side.signal, signal.SIGCONT)  # a stopped process could not end
                side.reach(SKIP)
                side.signal(signal.SIGSTOP)
                sides.append(side)
            for number in range(args.pairs):
                before = [(side.processor, side.steps) for side in sides]
                order = (0, 1) if number % 2 == 0 else (1, 0)
                times = {which: sides[which].turn(args.steps) for which in order}
                pairs.append((times[0], times[1]))
                a, b = ((side.processor - seconds) / (side.steps - steps) for side, (seconds, steps) in zip(sides, before, strict=True))
                used.append((a, b))
                print(f"pair {number + 1}: processor time of a step {a:.4f} s comparing, {b:.4f} s not", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    processor = [side.processor / side.steps for side in sides]
    difference, ratio = spread([a - b for a, b in used]), spread([a / b for a, b in pairs])
    with_it, without = (statistics.median(column) for column in zip(*pairs, strict=True))
    result: dict[str, Any] = {"machine": machine(), "arguments": vars(args), "pairs": pairs, "processor": used}
    print(
        f"{args.parallel}, {args.model} model, {args.ranks} ranks, {len(pairs)} pairs of {args.steps} steps:\n"
        f"processor time per step {processor[0] * 1000:.1f} ms with a comparison in every step, {processor[1] * 1000:.1f} ms without; "
        f"difference in pairs {difference['median'] * 1000:.1f} ms (quartiles {difference['lower quartile'] * 1000:.1f} to "
        f"{difference['upper quartile'] * 1000:.1f})\n"
        f"step {with_it * 1000:.1f} ms and {without * 1000:.1f} ms (medians); ratio {ratio['median']:.4f} "
        f"(quartiles {ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f})"
    )
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measure what a comparison of replicas costs: the same job with one in every step and with none.

    python benchmarks/comparison.py --pairs 10 --steps 8 --json comparison.json

Two jobs under `understudy run` take turns (`turns.py`), one with `--compare-every 1`, the other with `--compare-every 0`. Their difference
in processor time of all processes per step is the cost of one comparison; with `--compare-every N` a step pays an N-th of it.
"""

from __future__ import annotations

import argparse
import functools
import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from recovery import MODELS, machine
from running import RunningJob
from turns import Side, take_turns


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

    def start(every: str, folder: Path, stack: ExitStack) -> Side:
        job = stack.enter_context(RunningJob(folder, arguments, ranks=args.ranks, spares=0, options=("--compare-every", every)))
        return Side(f"every {every}", job.process, job.metrics, folder / "output.log")

    turns = take_turns(
        [functools.partial(start, every) for every in ("1", "0")],
        args.pairs,
        args.steps,
        lambda number, a, b: print(
            f"pair {number}: processor time of a step {a.processor:.4f} s comparing, {b.processor:.4f} s not", flush=True
        ),
    )
    difference, ratio = turns.spread(lambda a, b: a.processor - b.processor), turns.spread(lambda a, b: a.took / b.took)
    (with_it, without), processor = turns.medians(), turns.processor()
    pairs = [[asdict(turn) for turn in pair] for pair in turns.pairs]
    print(
        f"{args.parallel}, {args.model} model, {args.ranks} ranks, {len(pairs)} pairs of {args.steps} steps:\n"
        f"processor time per step {processor[0] * 1000:.1f} ms with a comparison in every step, {processor[1] * 1000:.1f} ms without; "
        f"difference in pairs {difference['median'] * 1000:.1f} ms (quartiles {difference['lower quartile'] * 1000:.1f} to "
        f"{difference['upper quartile'] * 1000:.1f})\n"
        f"step {with_it * 1000:.1f} ms and {without * 1000:.1f} ms (medians); ratio {ratio['median']:.4f} "
        f"(quartiles {ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f})"
    )
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "arguments": vars(args), "pairs": pairs}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measure what Understudy costs while nothing fails: step time under `understudy run` against plain torchrun, same script.

    python benchmarks/overhead.py --pairs 20 --steps 8 --json overhead.json
    python benchmarks/overhead.py --model small --ranks 2,4,8,16,32       how the cost of a step grows with the ranks
    python benchmarks/overhead.py --apart --device cuda --ranks 2 --pairs 3 --steps 120      on a GPU

Both jobs take turns (`turns.py`). The result is the median of the pairs' ratios, with the quartiles: if these are on both sides of 1,
the difference is smaller than this machine can show. Also measured is the processor time per step of all processes of a job together,
over all its turns: this is the cost on a machine without a free core. A spare is kept warm meanwhile, as in real use.
With `--apart` each turn is a separate job: processes that share a GPU cannot be stopped.

Page faults are counted because they can decide the comparison: glibc returns memory at the top of its heap to the kernel
when `zero_grad` frees the gradients, and allocates it again in the next backward pass; how much, depends on which small object
happens to be above them. To exclude this accident, give both jobs the same fixed limits:
--environment MALLOC_TRIM_THRESHOLD_=2000000000 --environment MALLOC_MMAP_THRESHOLD_=33554432
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import evidence
from recovery import MODELS, ROOT, machine

sys.path.insert(0, str(ROOT / "examples"))

from running import SCRIPT, Metrics, RunningJob
from turns import Side, run_apart, take_turns


def under_understudy(arguments: list[str], ranks: int, args: argparse.Namespace, folder: Path, stack: ExitStack) -> Side:
    job = stack.enter_context(RunningJob(folder, arguments, ranks=ranks, spares=args.spares, environment=dict(args.environment)))
    return Side("understudy", job.process, job.metrics, folder / "output.log")


def under_torchrun(arguments: list[str], ranks: int, args: argparse.Namespace, folder: Path, stack: ExitStack) -> Side:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(SCRIPT), *arguments, "--metrics", str(folder / "metrics-{rank}.jsonl")]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **dict(args.environment)}  # torchrun's own default, without its warning
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    def end() -> None:
        process.terminate()
        process.wait()

    stack.callback(end)
    return Side("torchrun", process, Metrics(folder, ranks), folder / "output.log")


def variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def measure(ranks: int, args: argparse.Namespace) -> dict[str, Any]:
    """Measure all pairs with this number of ranks, in seconds, and the resources that both jobs used; print the result."""
    arguments = ["--steps", "1000000", "--parallel", args.parallel, "--log-every", "1000", "--device", args.device, *MODELS[args.model]]
    turns = (run_apart if args.apart else take_turns)(
        [functools.partial(start, arguments, ranks, args) for start in (under_understudy, under_torchrun)],
        args.pairs,
        args.steps,
        lambda number, a, b: print(
            f"pair {number}: step {a.took:.4f} s with understudy, {b.took:.4f} s with torchrun, ratio {a.took / b.took:.4f}", flush=True
        ),
    )
    ours, theirs = turns.medians()
    processor, faults = turns.processor(), [side.faults / side.steps for side in turns.sides]
    ratio, difference = turns.spread(lambda a, b: a.took / b.took), turns.spread(lambda a, b: a.took - b.took)
    of_rank = turns.spread(lambda a, b: (a.processor - b.processor) / ranks)
    print(
        f"{args.parallel}, {args.model} model, {ranks} ranks, {args.pairs} pairs of {args.steps} steps:\n"
        f"step {ours * 1000:.1f} ms with understudy, {theirs * 1000:.1f} ms with torchrun (medians); ratio {ratio['median']:.4f} "
        f"(quartiles {ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f}, all {ratio['min']:.4f} to {ratio['max']:.4f})\n"
        f"processor time per step {processor[0] * 1000:.1f} ms with understudy, {processor[1] * 1000:.1f} ms with torchrun; "
        f"ratio {processor[0] / processor[1]:.4f}\n"
        f"understudy's part of a step: {difference['median'] * 1e6:.0f} us (quartiles {difference['lower quartile'] * 1e6:.0f} to "
        f"{difference['upper quartile'] * 1e6:.0f}); of processor time {of_rank['median'] * 1e6:.0f} us a rank (quartiles "
        f"{of_rank['lower quartile'] * 1e6:.0f} to {of_rank['upper quartile'] * 1e6:.0f})\n"
        f"page faults per step {faults[0]:.0f} with understudy, {faults[1]:.0f} with torchrun",
        flush=True,
    )
    return {
        "ranks": ranks,
        "pairs": [(a.took, b.took) for a, b in turns.pairs],
        "step ratio": ratio,
        "step difference": difference,
        "processor": processor,
        "processor difference of a rank": of_rank,
        "faults": faults,
    }


def medians(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Columns, and a row for each number of ranks."""
    rows = []
    for found in results:
        ratio, part, of_rank = found["step ratio"], found["step difference"], found["processor difference of a rank"]
        quartiles = f"{ratio['median']:.4f} ({ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f})"
        faults = [f"{value:.0f}" for value in found["faults"]]
        rows.append([f"{found['ranks']}", quartiles, f"{part['median'] * 1e6:.0f}", f"{of_rank['median'] * 1e6:.0f}", *faults])
    columns = ["ranks", "step / torchrun (quartiles)", "difference, us", "processor time of a rank, us", "page faults", "torchrun"]
    return columns, rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Step time under understudy run against plain torchrun.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8, help="steps of one turn")
    parser.add_argument("--parallel", default="ddp", choices=("ddp", "hsdp", "tp"))
    parser.add_argument("--model", default="default", choices=sorted(MODELS))
    parser.add_argument("--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[4], help="by comma (4)")
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--apart", action="store_true", help="a job for each turn, in place of two that take turns")
    parser.add_argument("--environment", action="append", default=[], type=variable, metavar="NAME=VALUE", help="for both jobs")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "overhead")
    args = parser.parse_args()
    if args.pairs < 2 or args.steps < 1:
        parser.error("at least two pairs of one step each")
    results = [measure(ranks, args) for ranks in args.ranks]
    if args.write:
        evidence.write_rows(args.write, *medians(results))
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "arguments": vars(args), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

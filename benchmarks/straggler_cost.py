"""Measure what it costs to sample how much of its time a worker computes itself: the same job with and without, in turns, and one sample by
itself.

    python benchmarks/straggler_cost.py --pairs 20 --steps 8 --json straggler_cost.json

Both jobs run under `understudy run` and take turns (`turns.py`); one of them is not sampled (`UNDERSTUDY_OWN_TIME=0`). The result is the
median of the pairs' ratios of steps per second, with the quartiles: if these are on both sides of 1, the difference is smaller
than this machine can show. A sample is timed on a separate thread of this process: while the main thread multiplies matrices, so that
the two compete, and while it sleeps, when all threads are sampled.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch

from recovery import MODELS, ROOT, machine

sys.path.insert(0, str(ROOT / "examples"))

from running import RunningJob
from turns import Side, take_turns
from understudy.common.names import OWN_TIME_VARIABLE
from understudy.worker.process.own_time import INTERVAL, main_thread_runs
from understudy.worker.transport.backends import gloo_waits

LOOKS = 200


def job(name: str, switch: str, args: argparse.Namespace, folder: Path, stack: ExitStack) -> Side:
    arguments = ["--steps", "1000000", "--parallel", args.parallel, "--log-every", "1000", *MODELS[args.model]]
    environment = {OWN_TIME_VARIABLE: switch}
    running = stack.enter_context(RunningJob(folder, arguments, ranks=args.ranks, options=["--drill", "off"], environment=environment))
    return Side(name, running.process, running.metrics, folder / "output.log")


def timed(look: Callable[[], object], computing: bool) -> tuple[float, float]:
    """Return the seconds of a sample, and those of them in which it had a processor, in the median."""
    took: list[tuple[float, float]] = []
    pause = threading.Event()

    def work() -> None:
        for _ in range(LOOKS):
            pause.wait(INTERVAL / 10)
            begun, processor = time.perf_counter(), time.thread_time()
            look()
            took.append((time.perf_counter() - begun, time.thread_time() - processor))

    thread = threading.Thread(target=work)
    thread.start()
    matrix = torch.ones(300, 300)
    while computing and thread.is_alive():
        matrix @ matrix
    thread.join()
    return statistics.median(whole for whole, _ in took), statistics.median(processor for _, processor in took)


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps per second with looks at the workers' own time, against without.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8, help="steps of one turn")
    parser.add_argument("--parallel", default="ddp", choices=("ddp", "hsdp", "tp"))
    parser.add_argument("--model", default="default", choices=sorted(MODELS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--json", default="", help="file for all figures")
    args = parser.parse_args()
    if args.pairs < 2 or args.steps < 1:
        parser.error("at least two pairs of one step each")

    looks = {"main thread computes": timed(main_thread_runs, True), "main thread sleeps": timed(gloo_waits.count, False)}
    for name, (whole, processor) in looks.items():
        share = processor / INTERVAL
        print(f"a look while the {name}: {whole * 1e6:.0f} us, {processor * 1e6:.0f} us of processor time ({share:.3%} of one)", flush=True)
    turns = take_turns(
        [functools.partial(job, "with looks", "1", args), functools.partial(job, "without", "0", args)],
        args.pairs,
        args.steps,
        lambda number, a, b: print(
            f"pair {number}: {1 / a.took:.2f} steps/s with looks, {1 / b.took:.2f} without, ratio {b.took / a.took:.4f}", flush=True
        ),
    )
    ours, theirs = turns.medians()
    used, ratio = turns.processor(), turns.spread(lambda a, b: b.took / a.took)
    print(
        f"{args.parallel}, {args.model} model, {args.ranks} ranks, {args.pairs} pairs of {args.steps} steps:\n"
        f"{1 / ours:.3f} steps/s with looks, {1 / theirs:.3f} without (medians); ratio {ratio['median']:.4f} "
        f"(quartiles {ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f}, all {ratio['min']:.4f} to {ratio['max']:.4f})\n"
        f"processor time per step {used[0] * 1000:.1f} ms with looks, {used[1] * 1000:.1f} ms without",
        flush=True,
    )
    if args.json:
        found = {"looks": looks, "pairs": [(a.took, b.took) for a, b in turns.pairs], "ratio": ratio, "processor": used}
        Path(args.json).write_text(json.dumps({"machine": machine(), "arguments": vars(args), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

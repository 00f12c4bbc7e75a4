"""What it costs to look how much of its time a worker computes itself: the same job with and without, in turns, and one look by itself.

    python benchmarks/straggler_cost.py --pairs 20 --steps 8 --json straggler_cost.json

Both jobs run under `understudy run` and take turns (`turns.py`); in one of them nobody looks (`UNDERSTUDY_OWN_TIME=0`). The result is the
median of the pairs' ratios of steps per second, with the quartiles: where these stand on both sides of 1, the difference is smaller
than what this machine can show. A look is timed on a thread of its own, in this process: while the main thread multiplies matrices, when
it is in somebody's way, and while it sleeps, when all threads are looked at.
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


def timed(look: Callable[[], object], computing: bool) -> float:
    """Seconds of a look, in the median."""
    took: list[float] = []
    pause = threading.Event()

    def work() -> None:
        for _ in range(LOOKS):
            pause.wait(INTERVAL / 10)
            begun = time.perf_counter()
            look()
            took.append(time.perf_counter() - begun)

    thread = threading.Thread(target=work)
    thread.start()
    matrix = torch.ones(300, 300)
    while computing and thread.is_alive():
        matrix @ matrix
    thread.join()
    return statistics.median(took)


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
    print(f"a look: {', '.join(f'{seconds * 1e6:.0f} us while the {name}' for name, seconds in looks.items())}", flush=True)
    turns = take_turns(
        [functools.partial(job, "with looks", "1", args), functools.partial(job, "without", "0", args)],
        args.pairs,
        args.steps,
        lambda number, a, b: print(
            f"pair {number}: {1 / a.took:.2f} steps/s with looks, {1 / b.took:.2f} without, ratio {b.took / a.took:.4f}", flush=True
        ),
    )
    ours, theirs = turns.medians()
    processor, ratio = turns.processor(), turns.spread(lambda a, b: b.took / a.took)
    print(
        f"{args.parallel}, {args.model} model, {args.ranks} ranks, {args.pairs} pairs of {args.steps} steps:\n"
        f"{1 / ours:.3f} steps/s with looks, {1 / theirs:.3f} without (medians); ratio {ratio['median']:.4f} "
        f"(quartiles {ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f}, all {ratio['min']:.4f} to {ratio['max']:.4f})\n"
        f"processor time per step {processor[0] * 1000:.1f} ms with looks, {processor[1] * 1000:.1f} ms without",
        flush=True,
    )
    if args.json:
        found = {"looks": looks, "pairs": [(a.took, b.took) for a, b in turns.pairs], "ratio": ratio, "processor": processor}
        Path(args.json).write_text(json.dumps({"machine": machine(), "arguments": vars(args), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

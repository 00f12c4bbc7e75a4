"""What Understudy costs while nothing fails: step time under `understudy run` against plain torchrun, same script.

    python benchmarks/overhead.py --pairs 20 --steps 8 --json overhead.json
    python benchmarks/overhead.py --model small --ranks 2,4,8,16,32       how the cost of a step grows with the ranks

Both jobs are started, and from then on they take turns: one is stopped (SIGSTOP to all its processes) while the other trains for a
few steps, so that a machine that is faster or slower from one minute to the next is so for both. A turn's figure is the median
of its step times, without the first step after it was woken. Two neighbouring turns, one of each, are a pair; the result is the
median of the pairs' ratios, with the quartiles: where these stand on both sides of 1, the difference is smaller than what this
machine can show. Besides, the processor time per step of all processes of a job together (workers, spare, and what started
them), over all its turns: this is what a machine pays that has no core to spare. A spare is kept warm meanwhile, as in real use.

Page faults are counted because they can decide the comparison: glibc gives memory at the top of its heap back to the kernel
when `zero_grad` frees the gradients, and takes it again in the next backward pass; how much, depends on which small object
happens to lie above them. To take this accident out, give both jobs the same fixed limits:
--environment MALLOC_TRIM_THRESHOLD_=2000000000 --environment MALLOC_MMAP_THRESHOLD_=33554432
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from recovery import MODELS, ROOT, machine

sys.path.insert(0, str(ROOT / "examples"))

from running import SCRIPT, Metrics, RunningJob

SKIP = 20  # first steps of a job: buckets, optimizer state, caches, and most comparisons of the whole state
POLL = 0.02  # seconds


@dataclass
class Side:
    """One of the two jobs. It runs while it has its turn."""

    name: str
    process: subprocess.Popen[bytes]
    metrics: Metrics
    log: Path
    steps: int = 0  # in all turns, as the next two
    processor: float = 0.0  # seconds
    faults: int = 0  # of pages, without those that had to be read from a disk

    def reach(self, step: int) -> None:
        """Waits until all ranks have reported `step`."""
        while max(self.metrics.complete(), default=0) < step:
            if self.process.poll() is not None:
                output = self.log.read_text(errors="replace")[-3000:]
                raise SystemExit(f"{self.name} ended with code {self.process.returncode}:\n{output}")
            time.sleep(POLL)
            self.metrics.refresh()

    def turn(self, steps: int) -> float:
        """Trains for `steps` steps and some more; gives the median time of those, in seconds."""
        self.metrics.refresh()
        first, before = max(self.metrics.complete(), default=0), self._used()
        self.signal(signal.SIGCONT)
        self.reach(first + 1 + steps)
        self.signal(signal.SIGSTOP)
        ends = self.metrics.complete()
        after = self._used()
        self.processor += after[0] - before[0]
        self.faults += after[1] - before[1]
        self.steps += max(ends) - first
        return statistics.median(ends[step + 1] - ends[step] for step in range(first + 1, first + 1 + steps))

    def _processes(self) -> list[psutil.Process]:
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def _used(self) -> tuple[float, int]:
        """Seconds of processor time, and page faults, of all processes so far."""
        processes = self._processes()
        times = [process.cpu_times() for process in processes]
        stats = [Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split() for process in processes]
        return float(sum(spent.user + spent.system for spent in times)), sum(int(stat[7]) for stat in stats)

    def signal(self, number: signal.Signals) -> None:
        """To every process of the job; its parents are stopped first, so that nobody wonders about a stopped child, and woken last."""
        processes = self._processes()
        for process in processes if number == signal.SIGSTOP else reversed(processes):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def under_understudy(folder: Path, arguments: list[str], ranks: int, args: argparse.Namespace, stack: ExitStack) -> Side:
    job = stack.enter_context(RunningJob(folder, arguments, ranks=ranks, spares=args.spares, environment=dict(args.environment)))
    return Side("understudy", job.process, job.metrics, folder / "output.log")


def under_torchrun(folder: Path, arguments: list[str], ranks: int, args: argparse.Namespace, stack: ExitStack) -> Side:
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


def spread(values: list[float]) -> dict[str, float]:
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "lower quartile": lower, "upper quartile": upper, "min": min(values), "max": max(values)}


def take_turns(ranks: int, args: argparse.Namespace) -> dict[str, Any]:
    """All pairs with this number of ranks, in seconds, and what both jobs used."""
    arguments = ["--steps", "1000000", "--parallel", args.parallel, "--log-every", "1000", *MODELS[args.model]]
    folder = Path(tempfile.mkdtemp(prefix="understudy-benchmark-"))
    pairs: list[tuple[float, float]] = []
    try:
        with ExitStack() as stack:
            sides = []
            for name, start in (("understudy", under_understudy), ("torchrun", under_torchrun)):
                side = start(folder / name, arguments, ranks, args, stack)
                stack.callback(side.signal, signal.SIGCONT)  # a stopped process could not end
                side.reach(SKIP)
                side.signal(signal.SIGSTOP)
                sides.append(side)
            for number in range(args.pairs):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                times = {which: sides[which].turn(args.steps) for which in order}
                pairs.append((times[0], times[1]))
                a, b = pairs[-1]
                print(f"pair {number + 1}: step {a:.4f} s with understudy, {b:.4f} s with torchrun, ratio {a / b:.4f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    processor = [side.processor / side.steps for side in sides]
    return {
        "ranks": ranks,
        "pairs": pairs,
        "step ratio": spread([a / b for a, b in pairs]),
        "step difference": spread([a - b for a, b in pairs]),
        "processor": processor,
        "processor difference of a rank": (processor[0] - processor[1]) / ranks,
        "faults": [side.faults / side.steps for side in sides],
    }


def told(found: dict[str, Any], args: argparse.Namespace) -> str:
    ours, theirs = (statistics.median(column) for column in zip(*found["pairs"], strict=True))
    ratio, difference = found["step ratio"], found["step difference"]
    processor, faults = found["processor"], found["faults"]
    return (
        f"{args.parallel}, {args.model} model, {found['ranks']} ranks, {args.pairs} pairs of {args.steps} steps:\n"
        f"step {ours * 1000:.1f} ms with understudy, {theirs * 1000:.1f} ms with torchrun (medians); ratio {ratio['median']:.4f} "
        f"(quartiles {ratio['lower quartile']:.4f} to {ratio['upper quartile']:.4f}, all {ratio['min']:.4f} to {ratio['max']:.4f})\n"
        f"processor time per step {processor[0] * 1000:.1f} ms with understudy, {processor[1] * 1000:.1f} ms with torchrun; "
        f"ratio {processor[0] / processor[1]:.4f}\n"
        f"understudy's part of a step: {difference['median'] * 1e6:.0f} us (quartiles {difference['lower quartile'] * 1e6:.0f} to "
        f"{difference['upper quartile'] * 1e6:.0f}), processor time {found['processor difference of a rank'] * 1e6:.0f} us a rank\n"
        f"page faults per step {faults[0]:.0f} with understudy, {faults[1]:.0f} with torchrun"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Step time under understudy run against plain torchrun.")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8, help="steps of one turn")
    parser.add_argument("--parallel", default="ddp", choices=("ddp", "hsdp", "tp"))
    parser.add_argument("--model", default="default", choices=sorted(MODELS))
    parser.add_argument("--ranks", type=lambda text: [int(part) for part in text.split(",")], default=[4], help="by comma (4)")
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--environment", action="append", default=[], type=variable, metavar="NAME=VALUE", help="for both jobs")
    parser.add_argument("--json", default="", help="file for all figures")
    args = parser.parse_args()
    if args.pairs < 2 or args.steps < 1:
        parser.error("at least two pairs of one step each")
    results = []
    for ranks in args.ranks:
        results.append(take_turns(ranks, args))
        print(told(results[-1], args), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "arguments": vars(args), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

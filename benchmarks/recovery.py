"""Measure how long a recovery takes: kill ranks of a running job again and again, at random times.

    python benchmarks/recovery.py --kills 6 --parallel ddp,hsdp --json recovery.json

For every way to be parallel and every model: train, and then, `--kills` times, wait until a spare is warm and the steps
are steady, send SIGKILL to a random rank at a random time in a step (both from `--seed`), and wait for the next step.
The same is measured in two ways: by `understudy report`, phase by phase, and by the metrics
files of all ranks, from outside, from just before the signal to the first later step that every rank has committed.
The bandwidth of the state transfer is compared with a plain Gloo send of as many bytes, measured in the same run after
the job has ended.

Rows: *detect*, from the fault until the orchestrator knows of it; *abort*, until the last survivor has left the old generation; *assign*,
until the spare has its rank; *setup*, the spare runs the script up to its first step, while survivors abort; *attach*, survivors and
newcomer join the new generation's communicators; *transfer*, state moves from the replicas to the newcomer; *verify*, digests of donors
and newcomer are compared; *redo*, the interrupted step is done again, or what was left of it. *kill to next step* ends when every rank
has written a step beyond the last one that any rank had written; *one step* is the median of the ten steps before the kill, *beyond one
step* the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import evidence

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from running import PHASES, RunningJob  # noqa: E402

MODELS = {
    "default": [],  # train_gpt.py's own: 10.7 M parameters
    "small": ["--layers", "2", "--width", "144", "--heads", "4"],  # 0.5 M
}
SETTLE = 10  # steps between a recovery, with a spare warm again, and the next kill
LIMIT = 300.0  # seconds to wait for anything


@dataclass
class Sample:
    """One kill."""

    rank: int
    step: int
    step_seconds: float  # of the steps right before it
    all_seconds: float  # from the signal to the next step that all ranks have committed, seen from outside
    incident: dict[str, Any] = field(default_factory=dict)  # as in `understudy report`


@dataclass
class Result:
    parallel: str
    model: str
    samples: list[Sample]
    gloo_seconds: list[float]  # of a plain send of the median bytes_moved

    def rows(self) -> dict[str, list[float]]:
        """Return every measure by name, in seconds, one value for each kill."""
        rows = {"report " + phase: [s.incident["phases"].get(phase, 0.0) for s in self.samples] for phase in PHASES}
        rows["report total"] = [sample.incident["seconds"] for sample in self.samples]
        rows["kill to next step"] = [sample.all_seconds for sample in self.samples]
        rows["one step"] = [sample.step_seconds for sample in self.samples]
        rows["beyond one step"] = [sample.all_seconds - sample.step_seconds for sample in self.samples]
        return rows

    def bandwidths(self) -> tuple[float, float]:
        """Return the bandwidth of the transfer and of the plain Gloo send, in bytes per second (medians). 0 where nothing was moved."""
        moved = [
            sample.incident["bytes_moved"] / sample.incident["phases"]["transfer"]
            for sample in self.samples
            if sample.incident["phases"].get("transfer")
        ]
        raw = self.bytes_moved() / statistics.median(self.gloo_seconds) if self.gloo_seconds else 0.0
        return (statistics.median(moved) if moved else 0.0), raw

    def bytes_moved(self) -> int:
        return int(statistics.median(sample.incident["bytes_moved"] for sample in self.samples))


def wait_for(job: RunningJob, what: str, ready: Callable[[], bool]) -> None:
    """Wait until `ready`, polled ten times a second so as not to take the job's processor time."""
    start = time.monotonic()
    while not ready():
        if not job.running():
            raise SystemExit(f"the job ended with code {job.process.returncode} before {what}:\n{job.output()}")
        if time.monotonic() - start > LIMIT:
            raise SystemExit(f"{what}: not within {LIMIT:.0f} s:\n{job.output()}")
        time.sleep(0.1)
        job.metrics.refresh()


def measure(parallel: str, model: str, args: argparse.Namespace, folder: Path) -> Result:
    chance = random.Random(f"{args.seed} {parallel} {model}")
    arguments = ["--steps", "1000000", "--parallel", parallel, "--log-every", "1000", *MODELS[model]]
    samples: list[Sample] = []
    with RunningJob(folder, arguments, ranks=args.ranks, spares=args.spares) as job:

        def spare_is_warm() -> bool:
            return any(spare["state"] == "warm" for spare in job.status().get("spares", []))

        for number in range(1, args.kills + 1):
            wait_for(job, "a warm spare", spare_is_warm)
            first = job.metrics.last_step()
            wait_for(job, f"{SETTLE} steady steps", lambda first=first: job.metrics.last_step() >= first + SETTLE)  # type: ignore[misc]
            step_seconds = statistics.median(job.metrics.step_seconds()[-SETTLE:])
            time.sleep(chance.random() * step_seconds)  # the time within a step
            rank = chance.randrange(args.ranks)
            _, moment = job.kill(rank)
            wait_for(job, "the next step", lambda moment=moment: job.metrics.next_commit(moment) is not None)  # type: ignore[misc]
            found = job.metrics.next_commit(moment)
            assert found is not None
            sample = Sample(rank, found[0], step_seconds, found[1] - moment)
            samples.append(sample)
            wait_for(job, "the closed incident", lambda number=number: closed(job.report(), number))  # type: ignore[misc]
            sample.incident = job.report()["incidents"][number - 1]
            print(
                f"{parallel} {model}: kill {number}/{args.kills}, rank {rank}: {sample.all_seconds:.2f} s, "
                f"one step {step_seconds:.3f} s, {sample.incident['decision']}",
                flush=True,
            )
    result = Result(parallel, model, samples, [])
    if result.bytes_moved():
        command = [sys.executable, str(ROOT / "benchmarks" / "raw_gloo.py"), str(result.bytes_moved())]
        result.gloo_seconds = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["seconds"]
    return result


def closed(report: dict[str, Any], number: int) -> bool:
    incidents = report.get("incidents", [])
    return len(incidents) >= number and incidents[number - 1]["seconds"] is not None


def show(result: Result, console: Console) -> None:
    title = f"{result.parallel}, {result.model} model, {len(result.samples)} kills"
    table = Table("", "median, s", "min", "max", title=title, title_justify="left")
    for name, values in result.rows().items():
        if name in ("report total", "kill to next step"):
            table.add_section()
        table.add_row(name, *(f"{value:.3f}" for value in (statistics.median(values), min(values), max(values))))
    console.print(table)
    moved, raw = result.bandwidths()
    if moved and raw:
        console.print(
            f"state moved {result.bytes_moved() / 1e6:.1f} MB at {moved / 1e9:.2f} GB/s; a plain Gloo send of as many "
            f"bytes {raw / 1e9:.2f} GB/s; ratio {moved / raw:.2f}",
            highlight=False,
        )
    decisions = [sample.incident["decision"] for sample in result.samples]
    console.print(
        f"decisions: {', '.join(f'{name} {decisions.count(name)}' for name in sorted(set(decisions)))}; "
        f"steps lost: {sum(sample.incident['steps_lost'] for sample in result.samples)}\n",
        highlight=False,
    )


def record(results: list[Result], args: argparse.Namespace) -> dict[str, Any]:
    entries = []
    for result in results:
        moved, raw = result.bandwidths()
        rows = {
            name: {"median": statistics.median(values), "min": min(values), "max": max(values)} for name, values in result.rows().items()
        }
        entries.append(
            {
                **asdict(result),
                "rows": rows,
                "bytes_moved": result.bytes_moved(),
                "transfer_bytes_per_second": moved,
                "gloo_bytes_per_second": raw,
                "ratio": moved / raw if raw else None,
            }
        )
    return {"machine": machine(), "arguments": vars(args), "results": entries}


def medians(results: list[Result]) -> tuple[list[str], list[list[str]]]:
    """Columns and a row for each combination, in seconds."""
    columns = list(results[0].rows())
    rows = []
    for result in results:
        moved, raw = result.bandwidths()
        cells = [f"{statistics.median(result.rows()[name]):.3f}" for name in columns]
        rows.append([f"{result.parallel}, {result.model}", *cells, f"{moved / raw:.2f}" if moved and raw else ""])
    return ["mode, model", *columns, "bandwidth / Gloo"], rows


def machine() -> dict[str, Any]:
    return {
        "processors": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill ranks of a running job and measure each recovery.")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--parallel", default="ddp,hsdp", help="any of ddp, hsdp, tp, by comma")
    parser.add_argument("--models", default="default,small", help="any of default, small, by comma")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "recovery")
    parser.add_argument("--keep", default="", help="folder for run directories and logs; default: none are kept")
    args = parser.parse_args()
    console = Console()
    folder = Path(args.keep or tempfile.mkdtemp(prefix="understudy-benchmark-"))
    results: list[Result] = []
    try:
        for parallel in args.parallel.split(","):
            for model in args.models.split(","):
                results.append(measure(parallel, model, args, folder / f"{parallel}-{model}"))
                show(results[-1], console)
        if args.write:
            evidence.write_rows(args.write, *medians(results))
    finally:
        if args.json and results:
            Path(args.json).write_text(json.dumps(record(results, args), indent=1) + "\n")
        if not args.keep:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()

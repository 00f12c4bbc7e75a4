"""Measure what a drill costs, and whether a loss after one takes as long as without: real jobs, two ranks and a spare.

    python benchmarks/drill.py --models default,100M --drills 5 --kills 5 --rounds 2 --before FOLDER --json drill.json

Trains `examples/train_gpt.py` with DDP. For every model, `--drills` times: once a spare is warm and steps are steady, a rank is drilled.
Its step is compared with the median of the ten before, and its peak memory (`VmHWM`, reset through `clear_refs`) with its peak in
those ten; the spare's peak memory is read until it is ended. Then, with the first model, ranks are killed, `--kills` times in each of
several jobs that take turns, `--rounds` times: one that is never drilled, one in which the rank is drilled right before and has passed,
and, with `--before`, one under an earlier version of Understudy, whose checkout is FOLDER. The time is that to the next step that all
ranks have committed.

*pause* is what the rank spends on the drill: reports and digests at begin and end, and the wait at its vote; the *drilled step* is that
of all ranks, from commit to commit; *extra* is by how much the rank's peak memory is higher until the verdict.

On a machine with fewer cores than workers spare and ranks take each other's time: the drilled step is then longer for that alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import evidence

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers.tables import markdown, spread
from recovery import MODELS as KNOWN
from recovery import SETTLE, closed, machine, wait_for
from running import RunningJob
from understudy.cli.client import Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY

MODELS = {**KNOWN, "100M": ["--layers", "14", "--width", "768", "--heads", "12"]}
RANKS = 2
LOOK = 0.01  # seconds between two looks at the spare's memory
NEVER, BEHIND, BEFORE = "never drilled", "behind a drill", "the earlier version"


@dataclass
class Drilled:
    """One drill; seconds and bytes."""

    rank: int
    verdict: str
    pause: float  # that the rank has spent on it: its messages at begin, the wait at its vote, its messages at the end
    step: float  # from the commit before the drilled step to its commit, on all ranks
    usual: float  # the same, median of the ten before the drill
    whole: float  # from the request to the verdict
    moved: int
    rank_memory: int  # its peak in those ten
    rank_extra: int  # by how much its peak is higher until the verdict
    spare_memory: int  # its peak


@dataclass
class Killed:
    rank: int
    side: str
    seconds: float  # from the signal to the next step that all ranks have committed


def status_field(pid: int, field: str) -> int:
    """Return a field in bytes; 0 for a process that has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def set_back(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM becomes its present memory


class Peak:
    """Read the peak memory of a process that is ended from outside, until then."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            self.bytes = max(self.bytes, status_field(self._pid, "VmHWM"))

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return self.bytes


class Job:
    """A running job, and the drills and kills in it."""

    def __init__(self, job: RunningJob) -> None:
        self.job = job

    def settle(self) -> dict[str, Any]:
        """Wait until a spare is warm and ten more steps are done. Return the status from before them."""
        wait_for(self.job, "a warm spare", lambda: self._warm() is not None)
        found = self.job.status()
        for holder in found["ranks"]:
            set_back(holder["pid"])
        first = self.job.metrics.last_step()
        wait_for(self.job, f"{SETTLE} steady steps", lambda: self.job.metrics.last_step() >= first + SETTLE)
        return found

    def _warm(self) -> dict[str, Any] | None:
        return next((spare for spare in self.job.status().get("spares", []) if spare["state"] == "warm"), None)

    def drill(self, rank: int) -> Drilled:
        pid = next(holder["pid"] for holder in self.settle()["ranks"] if holder["rank"] == rank)
        usual, memory = statistics.median(self.job.metrics.step_seconds()[-SETTLE:]), status_field(pid, "VmHWM")
        spare = self._warm()
        assert spare is not None
        set_back(pid)
        peak, began = Peak(spare["pid"]), time.monotonic()
        try:
            server = Server.of(RunDirectory(self.job.run_dir))
            number = server.call("POST", of_job(ONLY, "drill"), {"rank": rank, "reason": "benchmark"})["number"]
            wait_for(self.job, "the verdict", lambda: bool(self._result(number)))
            whole = time.monotonic() - began
        finally:
            spare_memory = peak.end()
        found, step = self._result(number), self._result(number)["step"] + 1
        wait_for(self.job, "its step", lambda: step in self.job.metrics.complete())
        ends = self.job.metrics.complete()
        extra = max(0, status_field(pid, "VmHWM") - memory)
        took = ends[step] - ends[step - 1]
        return Drilled(rank, found["verdict"], found["pause"], took, usual, whole, found["bytes_moved"], memory, extra, spare_memory)

    def _result(self, number: int) -> dict[str, Any]:
        with suppress(httpx.HTTPError):
            for found in self.job.status().get("drills", []):
                if found["number"] == number and found["verdict"]:
                    return dict(found)
        return {}

    def kill(self, rank: int, side: str, number: int) -> Killed:
        if side == BEHIND and (verdict := self.drill(rank).verdict) != "same":
            raise SystemExit(f"a drill of rank {rank} came to {verdict!r}")
        self.settle()
        _, moment = self.job.kill(rank)
        wait_for(self.job, "the next step", lambda: self.job.metrics.next_commit(moment) is not None)
        found = self.job.metrics.next_commit(moment)
        assert found is not None
        wait_for(self.job, "the closed incident", lambda: closed(self.job.report(), number))
        return Killed(rank, side, found[1] - moment)


def drills_table(drills: dict[str, list[Drilled]]) -> str:
    rows = [
        [
            "model",
            "pause, ms",
            "drilled step, s",
            "usual step, s",
            "request to verdict, s",
            "MB moved",
            "rank, MB",
            "extra, MB",
            "spare, MB",
        ]
    ]
    for model, some in drills.items():
        seconds = [spread([getattr(one, name) for one in some], 2) for name in ("step", "usual", "whole")]
        sizes = [spread([getattr(one, name) for one in some], 0, 1e-6) for name in ("moved", "rank_memory", "rank_extra", "spare_memory")]
        rows.append([model, spread([one.pause for one in some], 0, 1000), *seconds, *sizes])
    return markdown(rows)


def kills_table(kills: list[Killed]) -> str:
    of = {side: [kill.seconds for kill in kills if kill.side == side] for side in (BEFORE, NEVER, BEHIND)}
    medians = {side: statistics.median(some) for side, some in of.items() if some}
    against = next(iter(medians))
    rows = [["kill to the next commit, s", "kills", "median (lowest-highest)", f"median, over that of: {against}"]]
    rows += [[side, str(len(of[side])), spread(of[side], 3), f"{found / medians[against]:.3f}"] for side, found in medians.items()]
    return markdown(rows)


def started(side: str, folder: Path, model: str, before: Path | None = None) -> RunningJob:
    """Start a training; `before`: a checkout of an earlier version, without drills."""
    arguments = ["--steps", "1000000", "--log-every", "1000", *MODELS[model]]
    if side != BEFORE:
        return RunningJob(folder, arguments, ranks=RANKS, spares=1, options=("--drill", "off"))
    return RunningJob(folder, arguments, ranks=RANKS, spares=1, environment={"PYTHONPATH": str(before / "src")} if before else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="default,100M", help=f"by comma: {', '.join(MODELS)}")
    parser.add_argument("--drills", type=int, default=5, help="of each model (5)")
    parser.add_argument("--kills", type=int, default=5, help="in each job, of the first model (5)")
    parser.add_argument("--rounds", type=int, default=2, help="of these jobs (2)")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="checkout of an earlier version; without: only this one")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "drill")
    args = parser.parse_args()
    models = args.models.split(",")
    if unknown := [name for name in models if name not in MODELS]:
        parser.error(f"there is no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    if args.before and not (args.before / "src" / "understudy").is_dir():
        parser.error(f"{args.before} is no checkout: there is no src/understudy in it")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no job is left running
    drills: dict[str, list[Drilled]] = {}
    kills: list[Killed] = []
    folder = Path(tempfile.mkdtemp(prefix="understudy-benchmark-"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            for model in models:
                task = progress.add_task(f"drills, {model}", total=args.drills)
                with started(NEVER, folder / model, model) as running:
                    job, drills[model] = Job(running), []
                    for number in range(args.drills):
                        drills[model].append(job.drill(number % RANKS))
                        progress.advance(task)
            sides = (*((BEFORE,) if args.before else ()), NEVER, BEHIND)
            task = progress.add_task("kills", total=args.kills * args.rounds * len(sides))
            for number in range(args.rounds if args.kills else 0):
                for side in sides if number % 2 == 0 else reversed(sides):
                    with started(side, folder / f"{side} {number}", models[0], args.before) as running:
                        for count in range(args.kills):
                            kills.append(Job(running).kill(count % RANKS, side, count + 1))
                            progress.advance(task)
    finally:  # an interrupted run has results, too
        shutil.rmtree(folder, ignore_errors=True)
        report(args, drills, kills)


def report(args: argparse.Namespace, drills: dict[str, list[Drilled]], kills: list[Killed]) -> None:
    print(drills_table({model: some for model, some in drills.items() if some}))
    if kills:
        print("\n" + kills_table(kills))
    if args.write and all(drills.values()):
        evidence.write_table(args.write, drills_table(drills))
        if kills:
            evidence.write_table(f"{args.write}-kills", kills_table(kills))
    if args.json:
        every = {model: [asdict(one) for one in some] for model, some in drills.items()}
        given = {name: str(value) for name, value in vars(args).items()}
        text = {
            "machine": machine(),
            "arguments": given,
            "drills": every,
            "kills": [asdict(kill) for kill in kills],
        }
        Path(args.json).write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()

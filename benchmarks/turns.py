"""Let two jobs take turns: one is stopped (SIGSTOP to all its processes) while the other trains for a few steps, so that a machine that is
faster or slower from one minute to the next is so for both.

A turn's figure is the median of its step times, without the first step after it was woken. Two neighbouring turns, one of each, are a
pair. Also measured are the processor time and the page faults of all processes of a job together (workers, spare, and their parents).
"""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from running import Metrics

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
        """Wait until all ranks have reported `step`."""
        while max(self.metrics.complete(), default=0) < step:
            if self.process.poll() is not None:
                output = self.log.read_text(errors="replace")[-3000:]
                raise SystemExit(f"{self.name} ended with code {self.process.returncode}:\n{output}")
            time.sleep(POLL)
            self.metrics.refresh()

    def turn(self, steps: int, stops: bool = True) -> Turn:
        """Train for `steps` steps and some more. `stops`: it was stopped until now, and is stopped again."""
        self.metrics.refresh()
        first, before = max(self.metrics.complete(), default=0), self._used()
        if stops:
            self.signal(signal.SIGCONT)
        self.reach(first + 1 + steps)
        if stops:
            self.signal(signal.SIGSTOP)
        ends = self.metrics.complete()
        after = self._used()
        passed, used = max(ends) - first, after[0] - before[0]
        self.processor += used
        self.faults += after[1] - before[1]
        self.steps += passed
        return Turn(statistics.median(ends[step + 1] - ends[step] for step in range(first + 1, first + 1 + steps)), used / passed)

    def _processes(self) -> list[psutil.Process]:
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def _used(self) -> tuple[float, int]:
        """Return the seconds of processor time, and page faults, of all processes so far."""
        processes = self._processes()
        times = [process.cpu_times() for process in processes]
        stats = [Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split() for process in processes]
        return float(sum(spent.user + spent.system for spent in times)), sum(int(stat[7]) for stat in stats)

    def signal(self, number: signal.Signals) -> None:
        """Signal every process of the job; its parents are stopped first, so that none reacts to a stopped child, and woken last."""
        processes = self._processes()
        for process in processes if number == signal.SIGSTOP else reversed(processes):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


@dataclass(frozen=True)
class Turn:
    """The figures of one turn; those of a step in seconds."""

    took: float
    processor: float  # of all processes together


@dataclass(frozen=True)
class Turns:
    sides: tuple[Side, Side]
    pairs: list[tuple[Turn, Turn]]

    def medians(self) -> tuple[float, float]:
        """Return the seconds of a step, of each side."""
        return statistics.median(a.took for a, _ in self.pairs), statistics.median(b.took for _, b in self.pairs)

    def processor(self) -> tuple[float, float]:
        """Return the processor seconds of a step, of each side, over all its turns."""
        first, second = self.sides
        return first.processor / first.steps, second.processor / second.steps

    def spread(self, figure: Callable[[Turn, Turn], float]) -> dict[str, float]:
        """Return the spread of a `figure` of each pair."""
        values = [figure(*pair) for pair in self.pairs]
        lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
        return {"median": middle, "lower quartile": lower, "upper quartile": upper, "min": min(values), "max": max(values)}


def run_apart(
    starts: Sequence[Callable[[Path, ExitStack], Side]], pairs: int, steps: int, tell: Callable[[int, Turn, Turn], None]
) -> Turns:
    """Run as `take_turns`, with a fresh job for each turn, which runs alone: processes that share a GPU cannot be stopped."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-benchmark-"))
    found: list[tuple[Turn, Turn]] = []
    sides: dict[int, Side] = {}
    try:
        for number in range(pairs):
            turns: dict[int, Turn] = {}
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                with ExitStack() as stack:
                    side = starts[which](folder / f"{number}-{which}", stack)
                    side.reach(SKIP)
                    turns[which] = side.turn(steps, stops=False)
                if (before := sides.get(which)) is not None:
                    side.steps += before.steps
                    side.processor += before.processor
                    side.faults += before.faults
                sides[which] = side
            found.append((turns[0], turns[1]))
            tell(number + 1, *found[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Turns((sides[0], sides[1]), found)


def take_turns(
    starts: Sequence[Callable[[Path, ExitStack], Side]], pairs: int, steps: int, tell: Callable[[int, Turn, Turn], None]
) -> Turns:
    """Start both jobs, each in its own folder, and give each `pairs` turns of `steps` steps. `tell`: called after each pair."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-benchmark-"))
    found: list[tuple[Turn, Turn]] = []
    try:
        with ExitStack() as stack:
            sides = []
            for number, start in enumerate(starts):
                side = start(folder / str(number), stack)
                stack.callback(side.signal, signal.SIGCONT)  # a stopped process could not end
                side.reach(SKIP)
                side.signal(signal.SIGSTOP)
                sides.append(side)
            for number in range(pairs):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                turns = {which: sides[which].turn(steps) for which in order}
                found.append((turns[0], turns[1]))
                tell(number + 1, *found[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first, second = sides
    return Turns((first, second), found)

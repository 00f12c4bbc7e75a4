"""Do one run: start a system, inject the faults at their places, wait for its end, and leave nothing running.

This process adopts what its jobs leave running (a child subreaper), because some of them detach processes: all processes
that the caller has started, directly or not, and that still run at the end of a run are ended.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from peers.log import Reader
from peers.measures import Fault, full_commits, recovered
from peers.systems import System, Training

POLL = 0.01  # seconds
START = 180.0  # seconds to the first step
GRACE = 10.0  # seconds for a job that has trained to end by itself
STALL = 120.0  # seconds without a line after which a run is given up
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Place:
    """The place of a fault: as soon as all ranks have committed `step`, and then `part` of a step later, in `rank`."""

    step: int
    part: float
    rank: int


@dataclass(frozen=True)
class Memory:
    """Proportional set sizes in bytes: pages that several processes share count in parts."""

    worker: float  # median of the workers with a rank
    job: float  # all processes of the job


@dataclass(frozen=True)
class Observed:
    faults: list[Fault]
    memory: Memory | None
    problem: str  # why it did not finish
    load: float  # the machine's, in the minute before its end


def places(training: Training) -> list[Place]:
    """Return the places of faults, the same for every system. Faults are spread evenly, so that each has as many steps after it."""
    chance = random.Random(f"{training.seed} {training.ranks} {training.faults}")
    between = training.steps / (training.faults + 1)
    return [Place(round(between * (number + 1)), chance.random(), chance.randrange(training.ranks)) for number in range(training.faults)]


def adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_all() -> None:
    """End every process that this one has started, directly or not."""
    for _ in range(50):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=5)
        if not children:
            return


def memory_of(holders: Sequence[int]) -> Memory:
    sizes = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):
            sizes[child.pid] = float(child.memory_full_info().pss)
    return Memory(statistics.median([sizes[pid] for pid in holders if pid in sizes] or [0.0]), sum(sizes.values()))


def observe(
    system: System, step_seconds: float, faulty: bool, tell: Callable[[str], None], limit: float = 600.0
) -> tuple[Reader, Observed]:
    """Run a system to its end, or for `limit` seconds. `step_seconds`: a place's `part` is a part of it."""
    ranks, steps = system.training.ranks, system.training.steps
    waiting = places(system.training) if faulty else []
    faults: list[Fault] = []
    memory: Memory | None = None
    problem = ""
    process = system.start()
    reader = Reader(system.log)
    began = heard = time.monotonic()
    try:
        while True:
            time.sleep(POLL)
            if reader.refresh():
                heard = time.monotonic()
            elif process.poll() is not None:
                reader.refresh()
                finished = any(line.what == "final" for line in reader.lines)  # the job has not waited for the others
                problem = "" if finished else f"ended with code {process.returncode}: {_last_line(system.folder / 'output.log')}"
                break
            elif time.monotonic() - heard > (STALL if reader.lines else START):
                problem = f"was given up: nothing happened for {time.monotonic() - heard:.0f} s"
                break
            if time.monotonic() - began > limit:
                problem = f"was given up after {limit:.0f} s"
                break
            if sum(line.what == "final" for line in reader.lines) >= ranks:
                break
            done = reader.committed(ranks)
            if memory is None and done >= min(5, steps // (len(waiting) + 2)):
                memory = memory_of([pid for rank in range(ranks) if (pid := reader.holder(rank))])
            if waiting and done >= waiting[0].step and _whole(reader, faults, ranks):
                place = waiting.pop(0)
                time.sleep(place.part * step_seconds)
                pid = reader.holder(place.rank)
                assert pid is not None
                fault = Fault(len(faults) + 1, place.rank, pid, done, time.time())
                system.strike(place.rank, pid)
                faults.append(fault)
                tell(f"fault {fault.number} at step {done}, rank {place.rank}")
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.0 if problem else GRACE)
    finally:
        end_all()
        process.wait()
    reader.refresh()
    last = max((step for step, _ in full_commits(reader.lines, ranks)), default=0)  # it may never have been at full strength
    tell(f"{last} steps at full strength in {time.monotonic() - began:.1f} s {problem}".rstrip())
    return reader, Observed(faults, memory, problem, psutil.getloadavg()[0])


def _whole(reader: Reader, faults: Sequence[Fault], ranks: int) -> bool:
    """Return whether the job has recovered from the last fault."""
    return not faults or recovered(reader.lines, faults[-1], ranks)[1] is not None


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"

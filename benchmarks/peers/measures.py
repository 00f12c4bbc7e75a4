"""Compute the figures of a run from its log and the times of its faults. Pure: no process, no clock.

A step is committed *at full strength* when every rank has committed it, each with all ranks having a part in it. Times are in seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from peers.log import Line

SKIP = 3  # steps after a start or a recovery that do not count as steady


@dataclass(frozen=True)
class Fault:
    """A fault and the rank that it hit."""

    number: int
    rank: int
    pid: int  # of the rank's worker
    step: int  # the last one that all ranks had committed
    time: float


@dataclass(frozen=True)
class Recovery:
    """The recovery from a fault. None: it did not happen before the run's end."""

    full: float | None  # from the fault to a step committed at full strength, the lost rank's by another process
    new: float | None  # the same for a step that no rank had committed before
    pause: float | None  # how much longer than a steady step the job committed nothing new
    redone: int  # steps that a rank began more than once, the largest of all ranks


@dataclass(frozen=True)
class Run:
    recoveries: list[Recovery]
    finished: bool  # the last step is committed, perhaps by fewer ranks
    seconds: float | None  # from the first step committed by all ranks to the last step
    steady: float  # median step
    dropped: float  # batches of single ranks that no step contains
    redone: int  # the sum over all faults
    digests: list[str]  # of the ranks' parameters at the end, in the order of ranks


def full_commits(lines: Sequence[Line], ranks: int) -> list[tuple[int, float]]:
    """Return (step, time) each time that all ranks have committed a step at full strength, in order of time. A step that was lost and
    computed again comes twice.
    """
    open_steps: dict[int, set[int]] = {}
    found = []
    for line in lines:
        if line.what == "commit" and line.world == ranks:
            by = open_steps.setdefault(line.step, set())
            by.add(line.rank)
            if len(by) == ranks:
                found.append((line.step, line.time))
                del open_steps[line.step]
    return found


def recovered(lines: Sequence[Line], fault: Fault, ranks: int) -> tuple[float | None, float | None]:
    """Return the times of the first step at full strength after the fault, and of the first of these that is new."""
    before = max((line.step for line in lines if line.what == "commit" and line.time <= fault.time), default=0)
    after = [line for line in lines if line.time > fault.time and not (line.rank == fault.rank and line.pid == fault.pid)]
    found = full_commits(after, ranks)
    new = next((time for step, time in found if step > before), None)
    return (found[0][1] if found else None), new


def first_times(lines: Sequence[Line]) -> list[float]:
    """Return when the job's furthest step grew, for each step that any rank was the first to commit."""
    furthest, times = 0, []
    for line in lines:
        if line.what == "commit" and line.step > furthest:
            furthest = line.step
            times.append(line.time)
    return times


def steady_steps(lines: Sequence[Line], faults: Sequence[Fault], ranks: int) -> list[float]:
    """Return the time of each step that was not among the first `SKIP` of the run or after a fault, nor the one with the fault."""
    commits = full_commits(lines, ranks)
    found = []
    calm = -SKIP
    ends: list[float | None] = [recovered(lines, fault, ranks)[1] for fault in faults]
    for (step, start), (following, end) in pairwise(commits):
        if any(fault.time < end and (until is None or start < until) for fault, until in zip(faults, ends, strict=True)):
            calm = -SKIP
            continue
        calm += 1
        if calm > 0 and following == step + 1:
            found.append(end - start)
    return found


def redone_steps(lines: Sequence[Line], start: float, end: float) -> int:
    """Return the attempts in an interval at steps that the same rank had begun before; the largest of all ranks."""
    begun: set[tuple[int, int]] = set()
    again: dict[int, int] = {}
    for line in lines:
        if line.what == "begin":
            if (line.rank, line.step) in begun and start < line.time <= end:
                again[line.rank] = again.get(line.rank, 0) + 1
            begun.add((line.rank, line.step))
    return max(again.values(), default=0)


def dropped_batches(lines: Sequence[Line], ranks: int, steps: int) -> float:
    """Return how many of the `ranks` * `steps` batches had no part in the parameters: ranks that were missing when a step was committed."""
    worlds = {line.step: line.world for line in lines if line.what == "commit"}  # of the last commit of each step
    return float(sum(ranks - min(worlds.get(step, 0), ranks) for step in range(1, steps + 1)))


def measure(lines: Sequence[Line], faults: Sequence[Fault], ranks: int, steps: int) -> Run:
    lines = sorted(lines, key=lambda line: line.time)
    commits = full_commits(lines, ranks)
    steady_all = steady_steps(lines, faults, ranks)
    steady = statistics.median(steady_all) if steady_all else float("nan")
    furthest = first_times(lines)
    ends = [*(fault.time for fault in faults[1:]), float("inf")]
    recoveries = []
    for fault, end in zip(faults, ends, strict=False):
        full, new = recovered(lines, fault, ranks)
        gaps = [later - earlier for earlier, later in pairwise(furthest) if later > fault.time and new is not None and earlier <= new]
        recoveries.append(
            Recovery(
                full=full - fault.time if full is not None else None,
                new=new - fault.time if new is not None else None,
                pause=max(gaps) - steady if gaps else None,
                redone=redone_steps(lines, fault.time, end),
            )
        )
    digests = {line.rank: line.digest for line in lines if line.what == "final"}
    last = max((line.time for line in lines if line.what == "commit" and line.step == steps), default=None)
    finished = bool(digests) and last is not None
    return Run(
        recoveries=recoveries,
        finished=finished,
        seconds=last - commits[0][1] if finished and last is not None and commits else None,
        steady=steady,
        dropped=dropped_batches(lines, ranks, steps),
        redone=sum(one.redone for one in recoveries),
        digests=[digests.get(rank, "") for rank in range(ranks)],
    )


def checkpoint_cost(lines: Sequence[Line], ranks: int, every: int) -> tuple[float, float]:
    """Return, for a run without faults that writes a checkpoint after every `every`-th step, a step's seconds, and what a checkpoint adds.

    A step in which one was begun is compared with the others of the same run (medians). If that is below the machine's noise, the time
    for which ranks paused between a commit and the next step is a lower bound, and is used instead.
    """
    commits = full_commits(lines, ranks)[SKIP:]
    gaps = [(step, end - start) for (step, start), (_, end) in pairwise(commits)]
    step = statistics.median(gap for number, gap in gaps if number % every)
    ends = {(line.rank, line.step): line.time for line in lines if line.what == "commit"}
    stood = [
        line.time - ends[line.rank, line.step - 1]
        for line in lines
        if line.what == "begin" and line.step - 1 > SKIP and (line.step - 1) % every == 0
    ]
    return step, max(statistics.median(gap for number, gap in gaps if number % every == 0) - step, statistics.median(stood))


def goodput(run: Run, ideal: Run, ranks: int, steps: int) -> float | None:
    """Return the batches that count, per second, relative to the ideal run. None if one of them did not finish."""
    if run.seconds is None or ideal.seconds is None:
        return None
    return (1 - run.dropped / (ranks * steps)) * ideal.seconds / run.seconds

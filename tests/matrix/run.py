"""Run cells one after the other in a job, and compare every step of every rank with the undisturbed run.

A job serves cells until one of them ends it; then another is started for the rest. A line of a rank's log has digests of its whole state
after a step (`tests/faults/jobs/train.py --states`), so that each cell is compared separately: from the step at which its fault was
awaited to a step that all ranks have committed after it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.faults import harness
from tests.faults.harness import LIMIT
from tests.faults.harness import Job as Training
from tests.integration.processes import Mark, send_to_group, wait_until
from tests.matrix.cells import RANKS, Cell
from tests.matrix.results import Result
from tests.model.validate import NotAllowed, validate
from understudy.chaos import plan as plans
from understudy.chaos.base import Outcome
from understudy.chaos.job import Away, WatchedJob
from understudy.chaos.registry import registry
from understudy.chaos.run import MISSED, Record, Runner
from understudy.chaos.schedule import schedule as scheduled
from understudy.cli.chaos_command import Asked
from understudy.cli.client import NoAnswer, of_job
from understudy.cli.target import Target, target

SPARES = 3
PACE = 0.2  # seconds of a step, so that there are not too many of them
BEYOND = 2  # steps that all ranks commit after a cell
FEWEST = 256  # steps of an undisturbed run
PATIENCE = 120.0  # seconds from a fault to its outcome
Log = dict[str, dict[str, Any]]  # lines by step


@dataclass
class Finished:
    """A job that has ended, and the cells that it served."""

    results: list[Result]
    logs: dict[int, Log]
    steps: int  # that were committed


def run(cells: Iterable[Cell], folder: Path, mark: Mark, tell: Callable[[Result], None]) -> list[Finished]:
    """All `cells` of one mode and with the same flags, in as many jobs as it takes."""
    waiting, finished = list(cells), list[Finished]()
    while waiting:
        serving = _Serving(folder / f"job-{len(finished)}", mark, waiting[0])
        try:
            serving.begin()
            while waiting and serving.process.poll() is None:
                serving.serve(waiting.pop(0))
            finished.append(serving.finish())
        except Exception as error:  # of this job; the rest of an hour's cells goes on
            finished.append(serving.failed(error, waiting))
        finally:
            serving.training.end()
        for result in finished[-1].results:
            tell(result)
    return finished


class _Serving:
    def __init__(self, folder: Path, mark: Mark, like: Cell) -> None:
        arguments = ("--states", "--steps", str(1 << 40), "--pace", str(PACE), "--stop", str(folder / "stop"))
        self.training = Training(folder, mark, like.mode, spares=SPARES, flags=like.flags, arguments=arguments)
        self.process = self.training.process
        self._results: list[Result] = []
        self._about: Target
        self._job: WatchedJob

    def begin(self) -> None:
        """Returns when it trains."""
        run_dir = self.training.run_dir
        wait_until(lambda: (run_dir / "orchestrator.json").exists() or self.process.poll() is not None, "the orchestrator", LIMIT)
        self._about = target(run_dir, "", "", None, None)
        assert self._about.server is not None, self.training.output
        self._job = WatchedJob(Asked(self._about), self._about.server.url, run_dir)

        def trains() -> bool:
            assert self.process.poll() is None, self.training.output
            with suppress(Away):
                view = self._job.look()
                return view.whole and min(self._job.steps(view).values()) > 0
            return False

        wait_until(trains, "training", LIMIT)

    def serve(self, cell: Cell) -> None:
        result = Result(cell)
        self._results.append(result)
        before = self._committed()
        plan = plans.make({"fault": list(cell.entries)}, registry())
        asked = False

        def reported(record: Record) -> None:
            nonlocal asked
            if cell.migrates is not None and not asked:  # the fault is armed now
                asked = True
                assert self._about.server is not None
                with suppress(NoAnswer):  # the orchestrator may be the target
                    self._about.server.call("POST", of_job(self._about.job, "migrate"), {"rank": cell.migrates, "reason": cell.name})

        runner = Runner(self._job, scheduled(plan, registry(), RANKS, ["node0"]), registry(), reported, PATIENCE)
        found = runner.run()
        # The schedule is by time, so the fault comes before what brings its phase about.
        record = found.records[0]
        result.outcome, result.seconds, result.message = record.outcome, record.seconds, found.message
        result.wrong = _wrong(cell, found.records, found.unexplained)
        if record.outcome == Outcome.ENDS or result.wrong:
            self._end(killed=bool(result.wrong))
            result.steps = (before, min(max((_number(key) for key in log), default=0) for log in self._logs().values()))
            return
        after = self._committed() + BEYOND

        def beyond() -> bool:
            if self.process.poll() is not None:
                return True
            with suppress(Away):
                return self._committed() >= after
            return False

        wait_until(beyond, f"step {after}", LIMIT)
        result.grades = self._grades(record.incidents)
        result.steps = (before, after)
        if self.process.poll() is not None:
            result.wrong = f"the job ended after it: {self.training.output[-1000:]}"

    def _grades(self, numbers: Collection[int]) -> tuple[str, ...]:
        """Of these incidents; none where the job has ended."""
        assert self._about.server is not None
        try:
            known = self._about.server.call("GET", of_job(self._about.job, "report"))["incidents"]
        except NoAnswer:
            return ()
        return tuple(incident["grade"] or "open" for incident in known if incident["number"] in numbers)

    def _committed(self) -> int:
        return min(self._job.steps(self._job.look()).values())

    def _end(self, killed: bool) -> None:
        if killed and self.process.poll() is None:
            send_to_group(self.process.pid, signal.SIGTERM)  # nothing is to be had from this one any more
        self.training.wait()

    def finish(self) -> Finished:
        self._job.close()
        if self.process.poll() is None:
            (self.training.folder / "stop").touch()
        code = self.training.wait()
        ended_by_fault = any(result.outcome == Outcome.ENDS or result.wrong for result in self._results)
        for result in self._results:
            if not result.wrong and (code == 0) == ended_by_fault:
                result.wrong = f"the job's exit code is {code}"
        try:
            validate(self.training.folder, killed=True)
        except NotAllowed as error:
            self._results[-1].wrong = f"the model does not allow it: {error}"
        logs = self._logs()
        return Finished(self._results, logs, last_step(logs))

    def failed(self, error: Exception, waiting: list[Cell]) -> Finished:
        """The cell that was under way, or the first one if the job did not begin, is wrong."""
        self.training.end()
        if not self._results:
            self._results.append(Result(waiting.pop(0)))
        self._results[-1].wrong = self._results[-1].wrong or f"{type(error).__name__}: {error}"
        logs = self._logs()
        return Finished(self._results, logs, last_step(logs))

    def _logs(self) -> dict[int, Log]:
        return {rank: log_of(self.training.folder / f"log-{rank}.txt") for rank in range(RANKS)}


def _wrong(cell: Cell, records: list[Record], unexplained: list[int]) -> str:
    record = records[0]
    if record.outcome == MISSED:
        return f"{MISSED}: {record.why}"
    if record.outcome not in set(cell.allowed):
        return f"{record.outcome or 'no outcome'}: {record.why}"
    if not record.met and record.outcome == record.injection.expected:
        return record.why
    if unexplained and record.outcome != Outcome.ENDS:
        return f"incidents {unexplained} belong to no fault"
    for other in records[1:]:
        if not other.met and record.outcome != Outcome.ENDS:
            return f"{other.injection.fault} before it: {other.outcome or 'no outcome'}, {other.why}"
    if record.outcome == Outcome.ENDS and not record.happened:
        return "the job ended before it"
    return ""


def _number(key: str) -> int:
    return int(key.rpartition(" ")[2])


def last_step(logs: dict[int, Log]) -> int:
    """The last step that any rank has logged."""
    return max((_number(key) for log in logs.values() for key in log), default=0)


def log_of(path: Path) -> Log:
    found: Log = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):  # a worker was killed while it wrote the line
            value = json.loads(line)
            kind = "evaluation" if "evaluation" in value else "step"
            found[f"{kind} {value[kind]}"] = value
    return found


def undisturbed(mode: str, steps: int) -> dict[int, Log]:
    """Gives the logs of the same training under torchrun, of `steps` steps at least: a job makes another number of steps each time, and
    its steps do not depend on how many will follow, so that one kept run serves many jobs.
    """
    enough = max(FEWEST, 1 << (steps - 1).bit_length())
    folder = harness.undisturbed(mode, "--states", "--steps", str(enough))
    return {rank: log_of(folder / f"log-{rank}.txt") for rank in range(RANKS)}


def compare(finished: Finished, reference: dict[int, Log]) -> None:
    """Note in each result the differences from the undisturbed run."""
    for result in finished.results:
        first, last = result.steps
        if result.wrong or result.cell.why_not:
            continue
        if last <= first and result.outcome != Outcome.ENDS:
            result.wrong = "no step was compared"
        for rank, log in finished.logs.items():
            entered = _entered(log)
            for number in range(first + 1, last + 1):
                lost_after = _lost_after(number, log, entered) or result.outcome == Outcome.ENDS
                for key in (f"step {number}", f"evaluation {number}"):
                    may_lack = lost_after or (number == last and key.startswith("evaluation"))  # the next cell's victim, perhaps
                    loose = UNLIKE if key in entered else frozenset(("by",))
                    result.wrong = result.wrong or _differs(log.get(key), reference[rank].get(key), rank, key, loose, may_lack)


# A newcomer may enter an iteration after its step, if that was committed before its rank was lost. The step then returns what it did on
# another rank, which the incident notes, and the rank's own values, such as random streams, are those at the beginning of the next step.
UNLIKE = frozenset(("by", "own", "state"))


def _entered(log: Log) -> set[str]:
    """The first line of each newcomer."""
    steps = sorted((line["step"], key) for key, line in log.items() if "step" in line)
    return {key for (_, before), (_, key) in pairwise(steps) if log[before]["by"] != log[key]["by"]}


def _lost_after(number: int, log: Log, entered: set[str]) -> bool:
    """Return whether a line of this step may be missing: it counts, but the worker that would have written it was lost after its vote. Then
    the next line is a newcomer's.
    """
    later = [line["step"] for line in log.values() if line.get("step", 0) > number]
    return bool(later) and f"step {min(later)}" in entered


def _differs(line: dict[str, Any] | None, wanted: dict[str, Any] | None, rank: int, key: str, loose: frozenset[str], may_lack: bool) -> str:
    if wanted is None:
        return f"rank {rank} has a line of {key}, and the undisturbed run none" if line is not None else ""
    if line is None:
        return f"rank {rank} did not log {key}" if not may_lack else ""
    parts = [part for part in wanted if part not in loose and line.get(part) != wanted[part]]
    return f"rank {rank}: {', '.join(parts)} of {key} is not that of the undisturbed run" if parts else ""

"""Run the script once under Understudy, in its own process: start it, query it, pause it at its commits, and end it.

Ranks are paused with the files of `understudy chaos` (`chaos.armed`): one for each rank and step, which is removed to let the rank go on.
The files exist before the run begins, so that no step comes too early.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.cli.check.records import Records
from understudy.cli.client import Denied, NoAnswer, Server, of_job
from understudy.cli.job_commands import from_journal
from understudy.cli.launch import Launch
from understudy.cli.run_directory import RunDirectory
from understudy.cli.start import execute
from understudy.cli.supervisor import MARGIN
from understudy.links.messages import ONLY
from understudy.messages import script_check

LOOK = 0.2  # seconds between two polls
OUTPUT = "output.txt"  # the output of workers and orchestrator

T = TypeVar("T")


class Over(Exception):
    """The job has ended by itself."""


class Standstill(Exception):
    """The run makes no progress. The text names the event that was awaited, or why the job is paused."""


@dataclass(frozen=True)
class Ended:
    """The result of a run. `failure`: its event `ScriptFailed`, if there is one; `standstill`: why it was ended early."""

    records: Records
    reached: bool = False  # every rank has reached the last step
    standstill: str = ""
    paused: bool = False  # paused because of a difference
    code: int = 0
    message: str = ""
    failure: dict[str, Any] | None = None
    incidents: list[dict[str, Any]] = field(default_factory=list)
    drills: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class Run:
    """A run as a context manager: it leaves no process running."""

    def __init__(self, plan: Launch, path: Path, last: int) -> None:
        """Prepare a run of `last` committed steps. Raises `NoRun` if the folder at `path` belongs to another run."""
        self.plan = plan
        self.directory = RunDirectory.create(path, "")
        self.ranks = range(plan.spec.world_size)
        self._faults = Folder(self.directory.path)
        self.last = last
        self._status: dict[str, Any] = {}
        self._standstill = ""
        self._paused = False
        self._reached = False
        self.hold(last)
        self._process = multiprocessing.get_context("fork").Process(target=_execute, args=(plan, self.directory), name="understudy-check")

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.is_alive():
            try:
                self.ask("POST", "stop", {"reason": "the check is over"})
            except (NoAnswer, Denied, FileNotFoundError):
                self._process.terminate()
        for end in (self._process.terminate, self._process.kill):
            self._process.join(self.plan.timeouts.stop + MARGIN)
            if self._process.is_alive():
                end()
        self._process.join()

    # -- pausing -----------------------------------------------------------------------------------------------------------

    def hold(self, step: int) -> None:
        """Pause every rank after it has committed `step` steps."""
        for rank in self.ranks:
            self._faults.arm(Armed(f"{step}-{rank}", HOLD, rank, "between", step))

    def release(self, step: int) -> None:
        for rank in self.ranks:
            self._faults.disarm(f"{step}-{rank}")

    def holds(self, step: int) -> bool:
        """Return whether every rank is paused there."""
        return all(self._faults.has_fired(f"{step}-{rank}") for rank in self.ranks)

    def hold_in(self, phase: str, rank: int, step: int) -> None:
        """Pause one rank the next time that it reaches `phase` after it has committed `step` steps."""
        self._faults.arm(Armed(phase, HOLD, rank, phase, step))

    def where(self, phase: str) -> dict[str, Any] | None:
        """Return where the rank is paused in `phase`: worker, pid, transaction; None if it is not there yet."""
        return self._faults.fired(phase)

    def let_go(self, phase: str) -> None:
        self._faults.disarm(phase)

    def kill(self, phase: str, pid: int) -> None:
        """Kill the process that is paused in `phase`."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.let_go(phase)

    # -- queries ------------------------------------------------------------------------------------------------------------

    def ask(self, method: str, what: str, body: Any = None) -> Any:
        """Send a request to the orchestrator. Raises `NoAnswer` or `Denied`."""
        return Server.of(self.directory).call(method, of_job(ONLY, what), body)

    def status(self) -> dict[str, Any]:
        """Return the orchestrator's last status; empty before the first. Raises `Over`, and `Standstill` for a job that is paused."""
        if not self._process.is_alive():
            raise Over
        with suppress(NoAnswer, Denied, FileNotFoundError):
            self._status = self.ask("GET", "status")
        if self._status and self._status["exit_code"] is not None:
            raise Over
        if self._status and self._status["state"] == "held":
            self._paused = True
            raise Standstill(self._status["message"])
        return self._status

    def wait(self, what: str, come: Callable[[dict[str, Any]], T | None]) -> T:
        """Wait until `come` returns something true for a status, and return it. Raises `Over` and `Standstill`."""
        patience = self.plan.timeouts.hang_first
        before, since = None, time.monotonic()
        while True:
            status = self.status()
            if found := come(status):
                return found
            now = [status.get(key) for key in ("state", "step", "transaction", "incidents", "spares", "drills")]
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > patience:
                raise Standstill(script_check.STANDSTILL(seconds=patience, what=what))
            time.sleep(LOOK)

    def follow(self, course: Callable[[], None] = lambda: None) -> None:
        """Run `course`, then wait for the last step. If either ends early, the reason is kept for `ended`."""
        try:
            course()
            self._reached = self.wait(f"step {self.last}", lambda status: self.holds(self.last))
        except Over:
            self._process.join(self.plan.timeouts.stop + MARGIN)
        except Standstill as error:
            self._standstill = str(error)

    def ended(self) -> Ended:
        """End the run and return its result."""
        path = self.directory.path
        try:
            status, report, (events, _) = (from_journal(self.directory, what, Over()) for what in ("status", "report", "events"))
        except NoAnswer as error:
            return Ended(Records.of(path), standstill=str(error), code=self._process.exitcode or 1)
        return Ended(
            Records.of(path),
            self._reached,
            self._standstill,
            self._paused,
            self._process.exitcode or 0,
            status["message"],
            next((event for event in events if event["type"] == "ScriptFailed"), None),
            report["incidents"],
            status["drills"],
            status["notices"],
        )


def _execute(plan: Launch, directory: RunDirectory) -> None:
    """Run the job in the process of a run."""
    with (directory.path / OUTPUT).open("wb") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(execute(plan, directory, None))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)

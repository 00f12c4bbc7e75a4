"""Faults in the middle of drills: one real job serves a row of cells, and after the last its state is, bit by bit, torchrun's.

The rank or its spare is paused at a point (`understudy.chaos.armed`), so that the fault strikes there and nowhere else. Then the paused
process goes on, the drill reaches a verdict or is called off, and all ranks commit more steps.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.cells import HANG_LIMIT, OTHER, RANK, SAID, SETUP_LIMIT, SPARE, Cell
from tests.integration.processes import Mark, send, wait_until
from tests.integration.training import LONG, Started, Training
from tests.model.validate import validate
from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.cli.client import Denied, NoAnswer, Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY

JOB = Path(__file__).parents[2] / "benchmarks" / "soak_job.py"
RANKS = 2
BEYOND = 3  # steps that all ranks commit after a cell: more than a status may lag
ORCHESTRATOR = "-m understudy.orchestrator"


@dataclass
class Result:
    cell: Cell
    verdict: str = ""
    detail: str = ""
    seconds: float = 0.0  # from the fault until all ranks have committed `BEYOND` more steps
    wrong: str = ""

    def values(self) -> dict[str, Any]:
        about = {"phase": self.cell.phase, "fault": self.cell.what, "victim": self.cell.victim}
        return {**about, "verdict": self.verdict, "detail": self.detail, "seconds": self.seconds, "wrong": self.wrong}


@dataclass
class FaultsInDrills:
    """A job of two ranks, and the faults in it."""

    training: Training
    mark: Mark
    results: list[Result] = field(default_factory=list)

    def run(self, cells: Iterable[Cell], tell: Callable[[Result], None] = lambda result: None) -> list[Result]:
        """Run cells. Raises `AssertionError` where the job itself is harmed: then no later cell can be tested."""
        wanted = list(cells)
        self._started = self._start(hang=any(cell.what == "stopped" for cell in wanted))
        self._folder = Folder(self._started.folder / "run")
        for number, cell in enumerate(wanted):
            self.results.append(Result(cell))
            self._serve(self.results[-1], number)
            tell(self.results[-1])
        self._compare()
        return self.results

    def _start(self, hang: bool) -> Started:
        """Start the job. `hang`: the hang watch must find a hang soon. Else it must not consider a rank that is paused here hung."""
        short = ("--hang-limit", f"{HANG_LIMIT:g}", "--alone-limit", f"{HANG_LIMIT:g}", "--setup-limit", f"{SETUP_LIMIT:g}")
        limits = ("--drill", "off", *(short if hang else ()))
        command = ["-m", "understudy.cli", "run", "--nproc-per-node", str(RANKS), "--spares", "1", "--chaos", *limits]
        started = self.training.start([*command, "--run-dir", "FOLDER/run"], str(JOB), "--pace", "0.2")
        wait_until(lambda: (started.folder / "run" / "orchestrator.json").exists() or started.process.poll(), "the orchestrator", LONG)
        return started

    def _ask(self, method: str, what: str, body: Any = None) -> Any:
        return Server.of(RunDirectory(self._started.folder / "run")).call(method, of_job(ONLY, what), body)

    def _status(self) -> dict[str, Any]:
        """Return the status; empty while no orchestrator answers."""
        assert self._started.process.poll() is None, self._started.output
        with suppress(NoAnswer, Denied):
            return dict(self._ask("GET", "status"))
        return {}

    def _serve(self, result: Result, number: int) -> None:
        cell, rank = result.cell, number % RANKS
        holds = [Armed(f"{number}-{point}", HOLD, rank, point) for point in cell.points]
        before = self._settled()
        for hold in holds:
            self._folder.arm(hold)
        drill = self._ask("POST", "drill", {"rank": rank})["number"]
        for hold in holds:
            wait_until(lambda hold=hold: self._folder.has_fired(hold.name) or self._over(drill), f"{cell.name}: {hold.point}", LONG)  # type: ignore[misc]
            if not self._folder.has_fired(hold.name) and cell.phase != SAID:  # then the orchestrator was faster, and has ended the spare
                result.wrong = f"the drill never came to {hold.point!r}"
        for hold in holds[1:]:
            self._folder.disarm(hold.name)
        began = time.monotonic()
        step = self._strike(cell, rank, before)
        if cell.loses_a_rank:  # else a spare that has all it needs may report its verdict before any other knows of the loss
            wait_until(lambda: self._over(drill), f"{cell.name}: the loss ends the drill", LONG)
        self._folder.disarm(holds[0].name)
        wait_until(lambda: self._over(drill), f"{cell.name}: the end of the drill", LONG)
        over = self._over(drill)
        result.verdict, result.detail = over["verdict"], over["detail"]
        if result.verdict not in cell.verdicts:
            result.wrong = result.wrong or f"the verdict is {result.verdict}: {result.detail}"
        incidents = before["incidents"] + cell.loses_a_rank
        wait_until(lambda: self._trains(incidents, step + BEYOND), f"{cell.name}: training goes on", LONG)
        result.seconds = round(time.monotonic() - began, 2)
        if (found := self._status().get("incidents", incidents)) != incidents:
            result.wrong = result.wrong or f"{found - before['incidents']} incidents"

    def _settled(self) -> dict[str, Any]:
        """All ranks train, and a spare is warm."""
        found: dict[str, Any] = {}

        def settled() -> bool:
            nonlocal found
            found = self._status()
            warm = any(spare["state"] == "warm" for spare in found.get("spares", ()))
            return warm and found["state"] == "training" and found["step"] > 0

        wait_until(settled, "training and a warm spare", LONG)
        return found

    def _strike(self, cell: Cell, rank: int, before: dict[str, Any]) -> int:
        """Gives how many steps all had committed before."""
        if cell.victim in (RANK, OTHER):
            pid = before["ranks"][rank if cell.victim == RANK else 1 - rank]["pid"]
        elif cell.victim == SPARE:
            (pid,) = [spare["pid"] for spare in before["spares"] if spare["state"] == "warm"]
        else:
            (pid,) = self.mark.pids_running(ORCHESTRATOR)
        step = int(self._status()["step"])
        over = (ProcessLookupError,) if cell.phase == SAID and cell.victim == SPARE else ()  # it may have been ended for its verdict
        with suppress(*over):
            send(pid, signal.SIGKILL if cell.what == "killed" else signal.SIGSTOP)
        return step

    def _over(self, number: int) -> dict[str, Any]:
        """What came of this drill; empty: it is not over."""
        found = self._status().get("drills", ())
        return next((dict(drill) for drill in found if drill["number"] == number and drill["verdict"]), {})

    def _trains(self, incidents: int, step: int) -> bool:
        found = self._status()
        return bool(found) and found["state"] == "training" and found["incidents"] >= incidents and found["step"] >= step

    def _compare(self) -> None:
        """The end of the job, with torchrun's."""
        started = self._started
        (started.folder / "stop").touch()
        started.succeeds()
        finals = _finals(started.folder)
        reference = self.training.torchrun(str(JOB), "--steps", finals[0]["committed"])
        assert finals == _finals(reference.folder)
        validate(started.folder, killed=True)


def _finals(folder: Path) -> list[dict[str, str]]:
    return [json.loads((folder / f"final-{rank}.json").read_text()) for rank in range(RANKS)]

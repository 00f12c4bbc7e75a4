"""Drills in a job that is not disturbed otherwise: at chosen steps, a spare computes the step of one rank in addition to that rank.

Every rank is paused between two transactions (`understudy.chaos.armed`) until the spare is ready, however few steps the script has. No rank
goes on to the next step, or to the end of the script, before the drill is over, because a loss would call it off. The result of a drill is
in the job's journal. A script that never reaches such a place, or in which no spare is ever warm, just goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.conformance.scripts import Kill, Script
from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.cli.client import Denied, NoAnswer, Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY

LOOK = 0.05
PATIENCE = 20.0  # seconds that ranks are paused for a drill at most: the hang watch must not find them
MOST = 4  # drills in a run with kills


class Place(NamedTuple):
    step: int  # as many are committed before the one that is drilled
    rank: int = -1  # -1: the orchestrator's choice


PLACES = (Place(1, 0), Place(3, 1), Place(6, 2))  # in a run without kills


def around(kills: Collection[Kill]) -> tuple[Place, ...]:
    """Return the first and last steps in which no kill strikes, up to the one after the last kill."""
    struck = {kill.step for kill in kills} | {kill.step - 1 for kill in kills if kill.point == "between"}
    free = [step for step in range(1, max(struck, default=0) + 2) if step not in struck]
    return tuple(Place(step) for step in free[: MOST // 2] + free[MOST // 2 :][-MOST // 2 :])


class Drills:
    """Asks for them on a thread, while it is entered. The run directory must be there, and the job start with `--chaos` and a spare."""

    def __init__(self, script: Script, run_dir: Path, places: Sequence[Place]) -> None:
        self._run, self._armed, self._ranks = RunDirectory(run_dir), Folder(run_dir), range(script.ranks)
        self._places = [place for place in places if place.rank < script.ranks]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask_for_all, name="drills", daemon=True)

    @property
    def number(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        for step in {place.step + more for place in self._places for more in (0, 1)}:
            for hold in self._holds(step):
                self._armed.arm(hold)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _holds(self, step: int) -> list[Armed]:
        return [Armed(f"drill-{step}-{rank}", HOLD, rank, "between", step) for rank in self._ranks]

    def _ask_for_all(self) -> None:
        steps = [place.step for place in self._places]
        for place in self._places:
            try:
                self._ask_for(place)
            finally:
                for step in {place.step, place.step + 1} - {step for step in steps if step > place.step}:
                    self._release(*self._holds(step))  # or the ranks would wait

    def _ask_for(self, place: Place) -> None:
        holds = self._holds(place.step)
        while not any(self._armed.has_fired(hold.name) for hold in holds):
            if self._over.wait(LOOK):
                return
        self._wait_for(lambda: all(self._armed.has_fired(hold.name) for hold in holds))  # a newcomer may never come by
        number = self._begun(place.rank)
        if number < 0 or not self._wait_for(lambda: self._drill(number).get("stage") in ("computing", "over")):
            return
        other = next((rank for rank in self._ranks if rank != self._drill(number).get("rank")), 0)
        last = Armed(f"drilled-{place.step}", HOLD, other, "applied", place.step)  # all others have what they need of it by then
        self._armed.arm(last)
        try:
            self._release(*holds)
            self._wait_for(lambda: self._drill(number).get("stage") == "over")
        finally:
            self._release(last)

    def _begun(self, rank: int) -> int:
        """Begin a drill and return its number; -1 if none can begin."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                return int(Server.of(self._run).call("POST", of_job(ONLY, "drill"), {"rank": rank})["number"])
            except (Denied, NoAnswer):  # no spare is warm yet
                if self._over.wait(LOOK):
                    break
        return -1

    def _wait_for(self, happened: Callable[[], bool]) -> bool:
        until = time.monotonic() + PATIENCE
        while not happened():
            if self._over.wait(LOOK) or time.monotonic() > until:
                return False
        return True

    def _release(self, *holds: Armed) -> None:
        for hold in holds:
            self._armed.disarm(hold.name)

    def _drill(self, number: int) -> Mapping[str, Any]:
        try:
            drills = Server.of(self._run).call("GET", of_job(ONLY, "status"))["drills"]
        except (Denied, NoAnswer):
            return {}
        return next((drill for drill in drills if drill["number"] == number), {})

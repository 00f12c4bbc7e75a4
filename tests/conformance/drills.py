"""Drills in a job that nobody disturbs otherwise: at chosen steps, a spare computes the step of a chosen rank beside it.

The rank is held between two transactions (`understudy.chaos.armed`) until the spare is ready, however few steps the script has. What comes
of a drill stands in the job's journal. A script that never comes to such a place, or in which no spare is ever warm, just goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.conformance.scripts import Script
from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.cli.client import Denied, NoAnswer, Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY

LOOK = 0.05
PATIENCE = 20.0  # seconds that a rank is held for its drill at most: the hang watch must not find it
PLACES = ((0, 1), (1, 3), (2, 6))  # rank, and committed steps before the step that is drilled
BEFORE_KILLS = ((0, 1),)  # in the run with kills: all but the first strike later


class Drills:
    """Asks for them on a thread, while it is entered. The run directory must be there, and the job start with `--chaos` and a spare."""

    def __init__(self, script: Script, run_dir: Path, places: Sequence[tuple[int, int]] = PLACES, to_the_end: bool = False) -> None:
        """`to_the_end`: no rank begins another step before a drill is over. A loss would call it off."""
        self._run = RunDirectory(run_dir)
        self._armed = Folder(run_dir)
        self._holds = [
            Armed(f"drill-{number}", HOLD, rank, "between", step) for number, (rank, step) in enumerate(places) if rank < script.ranks
        ]
        ranks = range(script.ranks) if to_the_end else ()
        self._until_over = [Armed(f"drilled-{step}-{rank}", HOLD, rank, "between", step + 1) for _, step in places for rank in ranks]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask_for_all, name="drills", daemon=True)

    @property
    def number(self) -> int:
        return len(self._holds)

    def __enter__(self) -> Self:
        for hold in self._holds + self._until_over:
            self._armed.arm(hold)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask_for_all(self) -> None:
        for hold in self._holds:
            try:
                self._ask_for(hold)
            finally:
                for one in (hold, *(one for one in self._until_over if one.step == (hold.step or 0) + 1)):
                    self._armed.disarm(one.name)  # or the ranks would wait

    def _ask_for(self, hold: Armed) -> None:
        while not self._armed.has_fired(hold.name):
            if self._over.wait(LOOK):
                return
        number, until = None, time.monotonic() + PATIENCE
        while number is None:
            if self._over.wait(LOOK) or time.monotonic() > until:
                return
            try:
                number = Server.of(self._run).call("POST", of_job(ONLY, "drill"), {"rank": hold.rank})["number"]
            except (Denied, NoAnswer):
                continue  # no spare is warm yet
        while self._stage(number) not in ("computing", "over"):
            if self._over.wait(LOOK) or time.monotonic() > until:
                return
        self._armed.disarm(hold.name)
        while self._stage(number) != "over":
            if self._over.wait(LOOK) or time.monotonic() > until:
                return

    def _stage(self, number: int) -> str:
        try:
            drills = Server.of(self._run).call("GET", of_job(ONLY, "status"))["drills"]
        except (Denied, NoAnswer):
            return ""
        return str(next((drill["stage"] for drill in drills if drill["number"] == number), ""))

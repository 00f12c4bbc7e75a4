"""What is done to the run that is disturbed: a drill of each role, then SIGKILL to a rank, in one phase of a step after the other.

    step 1 to FIRST     nothing: what is known of the state comes from the first comparisons
    step FIRST and on   all ranks are held between two steps until a spare is warm and has been through the script's set-up as the rank
                        that is drilled; then they compute one step more, this rank in parallel with its spare; and so on for each role
    for each kill       all ranks are held between two steps until a spare is warm; then one rank is held in the phase of this kill
                        (`kills`) until all others wait for it, and killed
    after that          nothing: all ranks go on to the last step

The others wait in a collective or in their vote by then, so what they redo is compared with what they had come to (`verification.redo`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from understudy.chaos.job import View
from understudy.cli.check.runs import Run
from understudy.cli.client import Denied, NoAnswer
from understudy.cli.kills import Kill
from understudy.common.names import page_path
from understudy.common.page_view import Activity
from understudy.links.page import PageReader

FIRST = 3  # committed steps before the first drill
FOR_A_VERDICT = 10.0  # seconds that ranks are held for a drill whose step they have done, before they do one more
FOR_OTHERS = 30.0  # seconds that others may take to where they wait for the rank that is held
OVER = "over"  # a drill's stage
AGAINST = ("different", "not reproducible")  # verdicts of drills


class Disturbance:
    """Of a run that has not begun yet: its ranks are told where to wait."""

    def __init__(self, run: Run, kills: Sequence[Kill]) -> None:
        self.kills = kills
        self.undrilled: int | None = None  # a rank whose role was not drilled, because there were more roles than steps
        self._run = run
        self._first = kills[0].before
        for step in (*range(FIRST, self._first), *(kill.before for kill in kills)):
            run.hold(step)
        for kill in kills:
            run.hold_in(kill.phase, kill.rank, kill.before + (kill.phase == "between"))

    def __call__(self, tell: Callable[[str], object]) -> None:
        """All of it, until the recovery is over. Raises `Over` and `Standstill`."""
        run, step = self._run, FIRST
        status = run.wait(f"step {step}", lambda status: status if run.holds(step) else None)
        while step < self._first and (rank := _undrilled(status)) is not None:
            tell(f"a drill of rank {rank}: a spare goes through the script's set-up, and computes a step in parallel with it")
            step = self._drill(rank, step)
            status = run.status()
        self.undrilled = _undrilled(status)
        for held in range(step, self._first):
            run.release(held)
        for number, kill in enumerate(self.kills):
            tell(f"kill {number + 1} of {len(self.kills)} ({kill.phase}): a spare gets warm")
            run.wait(f"all ranks after step {kill.before}, and a warm spare", functools.partial(self._ready, kill))
            tell(f"kill {number + 1} of {len(self.kills)}: rank {kill.rank}, in step {kill.before + 1} ({kill.phase})")
            run.release(kill.before)
            self._strike(kill)

    def _drill(self, rank: int, step: int) -> int:
        """All ranks are held at `step`; gives the step at which they are behind it."""
        run = self._run
        number = run.wait("a warm spare", lambda status: _warm(status) and _ask(run, rank))
        run.wait("the spare of a drill, in the script's set-up", lambda status: _stage(status, number) in ("computing", OVER))
        while step < self._first:
            run.release(step)
            step += 1
            if self._is_over(number, step):
                break
        return step

    def _is_over(self, number: int, step: int) -> bool:
        """Whether the drill is, some time after all have done the step that was drilled and are held at `step`."""

        def over(status: dict[str, Any]) -> bool:
            return _stage(status, number) == OVER

        self._run.wait("the step of a drill", lambda status: over(status) or self._run.holds(step))
        until = time.monotonic() + FOR_A_VERDICT
        self._run.wait("the verdict of a drill", lambda status: over(status) or time.monotonic() > until)
        return over(self._run.status())

    def _ready(self, kill: Kill, status: dict[str, Any]) -> bool:
        return self._run.holds(kill.before) and _warm(status)

    def _strike(self, kill: Kill) -> None:
        """Leaves a kill alone whose phase the script does not come to, as one without a backward."""
        run, number = self._run, len([one for one in self.kills if one.struck])
        after = min((one.before for one in self.kills if one.before > kill.before), default=run.last)
        what = f"rank {kill.rank} in step {kill.before + 1}"
        run.wait(what, lambda status: run.where(kill.phase) is not None or run.holds(after))
        where = run.where(kill.phase)
        if where is None:
            run.let_go(kill.phase)
            return
        until, voted = time.monotonic() + FOR_OTHERS, kill.phase == "vote"
        others = [rank for rank in run.ranks if rank != kill.rank]
        run.wait("all others, which wait for it", lambda status: time.monotonic() > until or _all_wait(run, status, others, where, voted))
        kill.transaction, kill.worker, kill.at = where["transaction"], where["worker"], where["step"]
        run.kill(kill.phase, where["pid"])
        kill.seconds = run.wait("the recovery", lambda status: _recovered(run, number))


def _undrilled(status: dict[str, Any]) -> int | None:
    """A rank of whose role nothing is known. None: all are, or a drill has found something, which is enough to tell."""
    drills: Sequence[dict[str, Any]] = status["drills"]
    if any(drill["verdict"] in AGAINST for drill in drills):
        return None
    tried = {drill["rank"] for drill in drills}
    return next((rank["rank"] for rank in status["ranks"] if rank["proven"] is None and rank["rank"] not in tried), None)


def _warm(status: dict[str, Any]) -> bool:
    return bool(status) and bool(View(status, [], True).spares)


def _ask(run: Run, rank: int) -> int:
    """The drill's number; 0 if it cannot begin yet."""
    try:
        return int(run.ask("POST", "drill", {"rank": rank, "reason": "understudy run --check"})["number"])
    except (NoAnswer, Denied):
        return 0


def _stage(status: dict[str, Any], number: int) -> str:
    return str(next((drill["stage"] for drill in status["drills"] if drill["number"] == number), ""))


def _all_wait(run: Run, status: dict[str, Any], others: Sequence[int], where: dict[str, Any], voted: bool) -> bool:
    """Whether all `others` have `voted` in the transaction of the rank that is held, or wait for a peer in it or after it."""
    workers = [holder["worker"] for holder in status["ranks"] if holder["rank"] in others]
    return all(_waits(page_path(run.directory.path, worker), where["transaction"], voted) for worker in workers)


def _waits(path: Path, transaction: int, voted: bool) -> bool:
    try:
        page = PageReader(path)
    except OSError:
        return False  # its disk had no room for it
    view = page.read()
    page.close()
    if voted:
        return (view.transaction, view.activity) >= (transaction, Activity.VOTED)
    return view.transaction >= transaction and (view.waits > 0 or view.activity is Activity.VOTED)


def _recovered(run: Run, number: int) -> float | None:
    """How long the incident after `number` others took; None: it is not over."""
    try:
        incidents = run.ask("GET", "report")["incidents"]
    except (NoAnswer, Denied):
        return None
    return incidents[-1]["seconds"] if len(incidents) > number else None

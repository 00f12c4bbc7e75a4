"""Disturb the second run: a drill of each role, then SIGKILL to a rank, in one phase of a step after the other.

    step 1 to FIRST     nothing: the first comparisons collect knowledge of the state
    step FIRST and on   all ranks are paused between two steps until a spare is warm and has run the script's set-up as the rank that is
                        drilled; then they compute one more step, this rank in parallel with its spare; and so on for each role
    for each kill       all ranks are paused between two steps until a spare is warm; then one rank is paused in the phase of this kill
                        (`kills`) until all others wait for it, and killed
    after that          nothing: all ranks go on to the last step

By then the others wait in a collective or in their vote, so their redone step is compared with their first result (`verification.redo`).
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
from understudy.cli.kills import GAP, Kill
from understudy.common.names import page_path
from understudy.common.page_view import Activity
from understudy.links.page import PageReader

FIRST = 3  # committed steps before the first drill
FOR_A_VERDICT = 10.0  # seconds that ranks stay paused for a drill whose step they have computed, before they compute another one
FOR_OTHERS = 30.0  # seconds for the others to reach the point at which they wait for the paused rank
OVER = "over"  # a drill's stage
AGAINST = ("different", "not reproducible")  # verdicts of drills


class Disturbance:
    """Disturb a run that has not started yet: its ranks know in advance where to pause."""

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
        """Run all drills and kills, until the last recovery is over. Raises `Over` and `Standstill`."""
        run, step = self._run, FIRST
        status = run.wait(f"step {step}", lambda status: status if run.holds(step) else None)
        while step < self._first and (rank := _undrilled(status)) is not None:
            tell(f"a drill of rank {rank}: a spare goes through the script's set-up, and computes a step in parallel with it")
            step = self._drill(rank, step)
            status = run.status()
        self.undrilled = _undrilled(status)
        for number in range(step, self._first):
            run.release(number)
        for number, kill in enumerate(self.kills):
            tell(f"kill {number + 1} of {len(self.kills)} ({kill.phase}): a spare gets warm")
            run.wait(f"all ranks after step {kill.before}, and a warm spare", functools.partial(self._ready, kill))
            tell(f"kill {number + 1} of {len(self.kills)}: rank {kill.rank}, in step {kill.before + 1} ({kill.phase})")
            run.release(kill.before)
            self._strike(kill)

    def _drill(self, rank: int, step: int) -> int:
        """Drill `rank` while all ranks are paused at `step`; return the step at which they are paused afterwards."""
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
        """Return whether the drill is over. Asks for some time after all have computed the drilled step and are paused at `step`."""

        def over(status: dict[str, Any]) -> bool:
            return _stage(status, number) == OVER

        self._run.wait("the step of a drill", lambda status: over(status) or self._run.holds(step))
        until = time.monotonic() + FOR_A_VERDICT
        self._run.wait("the verdict of a drill", lambda status: over(status) or time.monotonic() > until)
        return over(self._run.status())

    def _ready(self, kill: Kill, status: dict[str, Any]) -> bool:
        return self._run.holds(kill.before) and _warm(status)

    def _strike(self, kill: Kill) -> None:
        """Kill a rank as planned. Skips a kill whose phase the script does not reach, such as backward in a script without one."""
        run, number = self._run, len([one for one in self.kills if one.struck])
        after = min((one.before for one in self.kills if one.before > kill.before), default=run.last)
        what = f"rank {kill.rank} in step {kill.before + 1}"
        run.wait(what, lambda status: run.where(kill.phase) is not None or run.holds(after))
        where = run.where(kill.phase)
        if where is None:
            run.let_go(kill.phase)
            return
        if where["step"] + 1 >= after and not self._postpone(kill, where["step"] + GAP - after):
            run.let_go(kill.phase)
            return
        until, voted = time.monotonic() + FOR_OTHERS, kill.phase == "vote"
        others = [rank for rank in run.ranks if rank != kill.rank]
        run.wait("all others, which wait for it", lambda status: time.monotonic() > until or _all_wait(run, status, others, where, voted))
        kill.transaction, kill.worker, kill.at = where["transaction"], where["worker"], where["step"]
        run.kill(kill.phase, where["pid"])
        kill.seconds = run.wait("the recovery", lambda status: _recovered(run, number))

    def _postpone(self, kill: Kill, by: int) -> bool:
        """Let the kills after this one come `by` steps later, because the script has reached its phase later than planned, as a step that
        only accumulates never applies. Otherwise the others would be paused for the next kill, where they notice no loss. Return whether
        enough steps are left. The rank that is killed does not know the new places, but its newcomer does.
        """
        run, later = self._run, [one for one in self.kills if one.before > kill.before]
        if not later or later[-1].before + by + GAP >= run.last:
            return False
        for one in later:
            run.release(one.before)
            run.let_go(one.phase)
        for one in later:
            one.before += by
            run.hold(one.before)
            run.hold_in(one.phase, one.rank, one.before + (one.phase == "between"))
        return True


def _undrilled(status: dict[str, Any]) -> int | None:
    """Return a rank whose role has not been drilled; None if there is none, or if a drill has found a difference."""
    drills: Sequence[dict[str, Any]] = status["drills"]
    if any(drill["verdict"] in AGAINST for drill in drills):
        return None
    tried = {drill["rank"] for drill in drills}
    return next((rank["rank"] for rank in status["ranks"] if rank["proven"] is None and rank["rank"] not in tried), None)


def _warm(status: dict[str, Any]) -> bool:
    return bool(status) and bool(View(status, [], True).spares)


def _ask(run: Run, rank: int) -> int:
    """Request a drill and return its number; 0 if it cannot start yet."""
    try:
        return int(run.ask("POST", "drill", {"rank": rank, "reason": "understudy run --check"})["number"])
    except (NoAnswer, Denied):
        return 0


def _stage(status: dict[str, Any], number: int) -> str:
    return str(next((drill["stage"] for drill in status["drills"] if drill["number"] == number), ""))


def _all_wait(run: Run, status: dict[str, Any], others: Sequence[int], where: dict[str, Any], voted: bool) -> bool:
    """Return whether all `others` have `voted` in the transaction of the paused rank, or wait for a peer in it or after it."""
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
    """Return how many seconds the incident after `number` others took; None while it is not over."""
    try:
        incidents = run.ask("GET", "report")["incidents"]
    except (NoAnswer, Denied):
        return None
    return incidents[-1]["seconds"] if len(incidents) > number else None

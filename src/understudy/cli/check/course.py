"""What is done to the run that is disturbed: a drill of each role, then SIGKILL to a rank inside a step.

    step 1 to FIRST     nothing: what is known of the state comes from the first comparisons
    step FIRST and on   all ranks are held between two steps until a spare is warm and has been through the script's set-up as the rank
                        that is drilled; then they compute one step more, this rank beside its spare; and so on for each role
    step BEFORE + 1     one rank is held at its vote, until all others have come to theirs; then it is killed
    behind it           nothing: all ranks go on to the last step

All others have voted by then, so what they redo is compared with what they had come to (`worker.protocol.redo`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.chaos.job import View
from understudy.cli.check.runs import Run
from understudy.cli.client import Denied, NoAnswer
from understudy.common.names import page_path
from understudy.common.page_view import Activity
from understudy.links.page import PageReader

FIRST = 3  # committed steps before the first drill
FOR_A_VERDICT = 10.0  # seconds that ranks are held for a drill whose step they have done, before they do one more
FOR_VOTES = 30.0  # seconds that others may take to their vote, while one rank is held in its
OVER = "over"  # a drill's stage
AGAINST = ("different", "not reproducible")  # verdicts of drills


@dataclass
class Kill:
    """`transaction` and what follows: -1 and empty while it has not struck."""

    rank: int
    before: int  # committed steps
    transaction: int = -1
    worker: str = ""
    seconds: float | None = None  # to the next commit by all ranks; None: there was none
    undrilled: int | None = None  # a rank of whose role no drill has told, because there were more roles than steps


class Disturbance:
    """Of a run that has not begun yet: its ranks are told where to wait."""

    def __init__(self, run: Run, rank: int, before: int) -> None:
        self.kill = Kill(rank, before)
        self._run = run
        for step in range(FIRST, before):
            run.hold(step)
        run.hold_in_vote(rank, before)

    def __call__(self, tell: Callable[[str], object]) -> None:
        """All of it, until the recovery is over. Raises `Over` and `Standstill`."""
        run, step = self._run, FIRST
        status = run.wait(f"step {step}", lambda status: status if run.holds(step) else None)
        while step < self.kill.before and (rank := _undrilled(status)) is not None:
            tell(f"a drill of rank {rank}: a spare goes through the script's set-up, and computes a step beside it")
            step = self._drill(rank, step)
            status = run.status()
        self.kill.undrilled = _undrilled(status)
        tell("a spare gets warm")
        run.wait("a warm spare", _warm)
        tell(f"rank {self.kill.rank} is killed in step {self.kill.before + 1}")
        for held in range(step, self.kill.before):
            run.release(held)
        self._strike()

    def _drill(self, rank: int, step: int) -> int:
        """All ranks are held at `step`; gives the step at which they are behind it."""
        run = self._run
        number = run.wait("a warm spare", lambda status: _warm(status) and _ask(run, rank))
        run.wait("the spare of a drill, in the script's set-up", lambda status: _stage(status, number) in ("computing", OVER))
        while step < self.kill.before:
            run.release(step)
            step += 1
            if self._is_over(number, step):
                break
        return step

    def _is_over(self, number: int, step: int) -> bool:
        """Whether the drill is, some time after all have done the step that was drilled and are held at `step`."""

        def over(status: dict[str, Any]) -> bool:
            return _stage(status, number) == OVER

        self._run.wait("the step of a drill", lambda status: over(status) or self._holds(step))
        until = time.monotonic() + FOR_A_VERDICT
        self._run.wait("the verdict of a drill", lambda status: over(status) or time.monotonic() > until)
        return over(self._run.status())

    def _holds(self, step: int) -> bool:
        return self._run.holds(step) if step < self.kill.before else self._run.in_vote() is not None

    def _strike(self) -> None:
        run, kill = self._run, self.kill
        where = run.wait(f"rank {kill.rank} in step {kill.before + 1}", lambda status: run.in_vote())
        until = time.monotonic() + FOR_VOTES
        run.wait("the votes of all others", lambda status: time.monotonic() > until or _all_voted(run, status, where["transaction"]))
        run.kill(where["pid"])
        kill.transaction, kill.worker = where["transaction"], where["worker"]
        kill.seconds = run.wait("the recovery", lambda status: _recovered(run))


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


def _all_voted(run: Run, status: dict[str, Any], transaction: int) -> bool:
    return all(_has_voted(page_path(run.directory.path, holder["worker"]), transaction) for holder in status["ranks"])


def _has_voted(path: Path, transaction: int) -> bool:
    try:
        page = PageReader(path)
    except OSError:
        return False  # its disk had no room for it
    view = page.read()
    page.close()
    return (view.transaction, view.activity) >= (transaction, Activity.VOTED)


def _recovered(run: Run) -> float | None:
    """How long it took; None: it is not over."""
    try:
        incidents = run.ask("GET", "report")["incidents"]
    except (NoAnswer, Denied):
        return None
    return incidents[-1]["seconds"] if incidents else None

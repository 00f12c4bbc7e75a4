"""The check itself: the script once undisturbed, once with drills and a kill, and a page of what came of it.

Both runs record what every rank holds behind each commit, and are compared by that. Known limits: one machine, and one kill, of the highest
rank at its vote; what a script does for the first time behind the last step, the check has not seen.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from understudy.cli.check.course import FIRST, Disturbance
from understudy.cli.check.page import as_values, view
from understudy.cli.check.runs import OUTPUT, Ended, Run
from understudy.cli.check.verdict import Judge, Page
from understudy.cli.flags import Flags
from understudy.cli.launch import Launch, Usage, launch
from understudy.cli.run_directory import RUNS
from understudy.common.console import say
from understudy.common.names import CHAOS_VARIABLE, RECORD_VARIABLE

BEHIND = 8  # steps behind the kill
LEAST = FIRST + 2  # before it, so that a drill finds its place
WIDTH = 140  # of the page that is kept
RUN_NAMES = ("reference", "recovery")  # their folders
AGAIN = "reference-again"


def check(flags: Flags, name: str) -> int:
    """The exit code. `name`: of the check, and of both jobs. Raises `Usage` and `NoRun`."""
    plan, before = _plan(flags, name), flags.check_steps
    last = before + BEHIND
    folder = (flags.run_dir or RUNS / name).absolute()
    os.environ[CHAOS_VARIABLE] = os.environ[RECORD_VARIABLE] = "1"  # workers read them there
    signal.signal(signal.SIGTERM, _interrupted)
    judge = Judge(plan.spec.world_size, before, last, [str(folder / one / OUTPUT) for one in RUN_NAMES])
    try:
        page = _page(plan, folder, judge, before, last)
    except KeyboardInterrupt:
        say("the check is called off")
        return 130
    (folder / "check.json").write_text(json.dumps(as_values(page), indent=1) + "\n")
    with (folder / "check.txt").open("w") as file:
        Console(file=file, width=WIDTH).print(view(page, str(folder)))
    if flags.as_json:
        print(json.dumps(as_values(page), indent=1))
    else:
        Console().print(view(page, str(folder)))
    return page.exit_code


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt  # as after Ctrl-C: nothing is left running


def _plan(flags: Flags, name: str) -> Launch:
    """Of the run with the kill."""
    if flags.orchestrator or flags.nnodes.strip() not in ("1", "1:1"):
        raise Usage("--check works on one machine only: leave --nnodes and --orchestrator away, with as many ranks as fit here")
    if flags.no_replenish:
        raise Usage("--check uses up a spare for each drill: leave --no-replenish away")
    if flags.check_steps < LEAST:
        raise Usage(f"--check-steps {flags.check_steps}: drills need at least {LEAST} steps in front of the kill")
    plan = launch(replace(flags, drill="off", require_drill=False, spares=max(1, 1 if flags.spares is None else flags.spares)), name)
    if plan.spec.world_size < 2:
        raise Usage("--check needs at least 2 ranks: a lone one has no replica, and nobody to keep its copies (--nproc-per-node 2)")
    # All ranks are held while a spare gets warm: that is no hang.
    return replace(plan, timeouts=replace(plan.timeouts, hang_floor=plan.timeouts.hang_first))


def _page(plan: Launch, folder: Path, judge: Judge, before: int, last: int) -> Page:
    alone = replace(plan, spec=replace(plan.spec, spares=0, prepared=0, replenish=False))
    reference = _reference(alone, folder / RUN_NAMES[0], last)
    if not reference.reached:
        return judge.unreached(reference, 0)
    run = Run(plan, folder / RUN_NAMES[1], last)
    disturbance = Disturbance(run, plan.spec.world_size - 1, before)
    say(f"the same with a spare: drills from step {FIRST + 1} on, a kill in step {before + 1}, and on to step {last}")
    with run, Console(stderr=True).status("the script sets up") as shown:
        run.follow(lambda: disturbance(shown.update))
    ended = run.ended()
    again = None
    if judge.doubts(reference.records, ended, disturbance.kill):
        say("what differs is not registered, and may be a clock: undisturbed once more, to see whether it is the same twice")
        again = _reference(alone, folder / AGAIN, last).records
    return judge.disturbed(reference.records, ended, disturbance.kill, again)


def _reference(plan: Launch, path: Path, last: int) -> Ended:
    run = Run(plan, path, last)
    say(f"{plan.spec.world_size} ranks, {last} steps, undisturbed; what they print is in {path / OUTPUT}")
    with run, Console(stderr=True).status(f"the reference, up to step {last}"):
        run.follow()
    return run.ended()

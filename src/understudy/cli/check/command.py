"""Run the check: the script once undisturbed, once with drills and kills, and a page with the verdict.

Both runs record what every rank has after each commit, and these records are compared. Known limits: one machine; only the highest rank
is killed; what a script does for the first time after the last step is not checked.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from understudy.cli.check.course import FIRST, Disturbance
from understudy.cli.check.page import as_values, view
from understudy.cli.check.runs import OUTPUT, Ended, Run
from understudy.cli.check.verdict import Judge, Page
from understudy.cli.flags import Flags
from understudy.cli.kills import PHASES, Kill, planned
from understudy.cli.launch import Launch, Usage, launch
from understudy.cli.run_directory import RUNS
from understudy.common.console import say
from understudy.common.names import CHAOS_VARIABLE, RECORD_VARIABLE
from understudy.messages import script_check

AFTER = 8  # steps after the last kill
LEAST = FIRST + 2  # steps before the first kill, enough for a drill
WIDTH = 140  # of the page that is written to a file
RUN_NAMES = ("reference", "recovery")  # their folders
AGAIN = "reference-again"


def check(flags: Flags, name: str) -> int:
    """Run the check and return its exit code. `name` names the check and both jobs. Raises `Usage` and `NoRun`."""
    began, plan = time.monotonic(), _plan(flags, name)
    kills = planned(plan.spec.world_size - 1, flags.check_steps, _phases(flags.kills))
    last = kills[-1].before + AFTER
    folder = (flags.run_dir or RUNS / name).absolute()
    os.environ[CHAOS_VARIABLE], os.environ[RECORD_VARIABLE] = "1", str(time.time_ns())  # workers read both from their environment
    signal.signal(signal.SIGTERM, _interrupted)
    judge = Judge(plan.spec.world_size, flags.check_steps, last, [str(folder / one / OUTPUT) for one in RUN_NAMES])
    try:
        page = replace(_page(plan, folder, judge, kills, last), took=time.monotonic() - began)
    except KeyboardInterrupt:
        say(script_check.CALLED_OFF())
        return 130
    (folder / "check.json").write_text(json.dumps(as_values(page), indent=1) + "\n")
    with (folder / "check.txt").open("w") as file:
        Console(file=file, width=WIDTH).print(view(page, str(folder)))
    if flags.as_json:
        print(json.dumps(as_values(page), indent=1))
    else:
        Console().print(view(page, str(folder)))
    return page.exit_code


def _phases(text: str) -> list[str]:
    """Return the phases that `--kills` names. Raises `Usage`."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in found if part not in PHASES]
    if unknown or not found or len(set(found)) != len(found):
        raise Usage(script_check.NO_SUCH_PHASE(given=text, known=", ".join(PHASES)))
    return found


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt  # as after Ctrl-C: no process is left running


def _plan(flags: Flags, name: str) -> Launch:
    """Return the launch of the run with the kills."""
    if flags.orchestrator or flags.nnodes.strip() not in ("1", "1:1"):
        raise Usage(script_check.CHECK_ON_ONE_MACHINE())
    if flags.no_replenish:
        raise Usage(script_check.CHECK_NEEDS_SPARES())
    if flags.check_steps < LEAST:
        raise Usage(script_check.CHECK_TOO_SHORT(steps=flags.check_steps, least=LEAST))
    plan = launch(replace(flags, drill="off", require_drill=False, spares=max(1, 1 if flags.spares is None else flags.spares)), name)
    if plan.spec.world_size < 2:
        raise Usage(script_check.CHECK_NEEDS_RANKS())
    # All ranks are paused while a spare gets warm: that is no hang.
    return replace(plan, timeouts=replace(plan.timeouts, hang_floor=plan.timeouts.hang_first))


def _page(plan: Launch, folder: Path, judge: Judge, kills: Sequence[Kill], last: int) -> Page:
    alone = replace(plan, spec=replace(plan.spec, spares=0, prepared=0, replenish=False))
    reference = _reference(alone, folder / RUN_NAMES[0], last)
    if not reference.reached:
        return judge.unreached(reference, 0)
    began = time.time_ns()
    run = Run(plan, folder / RUN_NAMES[1], last)
    disturbance = Disturbance(run, kills)
    steps = ", ".join(f"{kill.before + 1} ({kill.phase})" for kill in kills)
    say(script_check.RECOVERY_BEGINS(first=FIRST + 1, kills=steps, last=last))
    with run, Console(stderr=True).status("the script sets up") as shown:
        run.follow(lambda: disturbance(shown.update))
    ended = run.ended()
    again = None
    if judge.doubts(reference.records, ended, kills):
        say(script_check.REFERENCE_AGAIN())
        again = _reference(alone, folder / AGAIN, last).records
    page = judge.disturbed(reference.records, ended, kills, disturbance.undrilled, again)
    return judge.resumed(page, ended.records.read_before(began))


def _reference(plan: Launch, path: Path, last: int) -> Ended:
    run = Run(plan, path, last)
    say(script_check.REFERENCE_BEGINS(ranks=plan.spec.world_size, steps=last, path=path / OUTPUT))
    with run, Console(stderr=True).status(f"the reference, up to step {last}"):
        run.follow()
    return run.ended()

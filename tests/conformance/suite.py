"""Tries scripts: each under torchrun, under `understudy run` with drills, and there with kills, a few scripts at once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance import reported, runs, verdict
from tests.conformance.scripts import NOT_SILENT, Script, phases
from tests.conformance.verdict import BITWISE, NAMED, SKIPPED, TOLD, Found

Say = Callable[[Script, str], None]  # reports the progress of a script


@dataclass(frozen=True)
class Result:
    script: Script
    found: Found
    drills: Sequence[Mapping[str, Any]] = ()  # of the undisturbed run
    incidents: Sequence[Mapping[str, Any]] = ()  # of the run with kills
    alone: tuple[tuple[str, str], ...] = ()  # phases run alone because the run with all kills differs, and their verdicts

    @property
    def wrong(self) -> str:
        return verdict.wrong(self.script, self.found)

    def values(self) -> dict[str, Any]:
        """For JSON."""
        script, found = self.script, self.found
        return {
            "script": script.name,
            "about": script.about,
            "group": script.group,
            "expected": script.expectation,
            "found": found.verdict,
            "why": found.why,
            "drills": [verdict.of_drill(drill) for drill in self.drills],
            "kills": [str(kill) for kill in found.kills],
            "redone": [
                incident["proven_by"] for incident in self.incidents if incident["decision"] == "redo"
            ],  # and by whom each is proven
            "grades": [f"{incident['grade']}: {incident['why']}" for incident in self.incidents],
            "alone": dict(self.alone),
            "wrong": self.wrong,
        }


def attempt(script: Script, folder: Path, say: Say, alone: bool = True) -> Result:
    """All runs of one script. `alone`: look for the phase that is wrong, if one is and nothing else is expected."""

    def steady_or(found: Found) -> Found:
        """`found`, unless the script itself is not the same twice."""
        if found.verdict != "silent":
            return found
        say(script, "again under torchrun")
        return verdict.steady(reference, runs.torchrun(script, folder / "again")) or found

    if script.missing:
        return Result(script, Found(SKIPPED, script.missing))
    if script.expect == NOT_SILENT:
        found, ran = reported.attempt(script, folder, lambda what: say(script, what))
        return Result(script, found, ran.drills if ran else (), ran.incidents if ran else ())
    say(script, "under torchrun")
    reference = runs.reference(script)
    if bad := verdict.steady(reference):
        return Result(script, bad)
    say(script, "undisturbed, with drills")
    drilled = runs.understudy(script, folder / "undisturbed")
    before = verdict.undisturbed(script, reference, drilled)
    if before.verdict not in (BITWISE, TOLD):
        return Result(script, steady_or(before), drilled.drills)
    say(script, f"with {len(script.kills)} kills")
    killed = runs.understudy(script, folder / "disturbed", script.kills)
    found = verdict.disturbed(script, reference, killed, before)
    found = verdict.named(steady_or(found), drilled.drills)
    if found.verdict != "unsteady" and (why := verdict.overrated(reference, killed)):
        found = Found("overrated", why, found.kills)
    result = Result(script, found, drilled.drills, killed.incidents)
    if not alone or not result.wrong or found.verdict in (BITWISE, TOLD, NAMED, "idle", "unsteady"):
        return result
    verdicts = []
    for number, kills in enumerate(phases(script.kills)):
        name = " ".join(map(str, kills))
        say(script, f"with {name}")
        ran = runs.understudy(script, folder / f"alone-{number}", kills)
        by_itself = verdict.disturbed(script, reference, ran, before)
        verdicts.append((name, "never reached" if not ran.kills else BITWISE if by_itself.verdict == "idle" else by_itself.text))
    return Result(script, found, drilled.drills, killed.incidents, tuple(verdicts))


def everything(
    scripts: Sequence[Script], folder: Path, at_once: int, say: Say, done: Callable[[Result], None], alone: bool = True, keep: bool = False
) -> list[Result]:
    """Gives the results in the order of the scripts. `say` and `done` are called by one thread at a time."""
    lock = threading.Lock()

    def saying(script: Script, what: str) -> None:
        with lock:
            say(script, what)

    def work(script: Script) -> Result:
        own = folder / script.name
        try:
            result = attempt(script, own, saying, alone)
        except runs.Ended:
            raise
        except Exception as error:  # of this script; an hour's others go on
            result = Result(script, Found("unsteady", f"the harness failed: {type(error).__name__}: {error}"))
        if not keep:
            shutil.rmtree(own, ignore_errors=True)
        with lock:
            done(result)
        return result

    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(work, scripts))
        except BaseException:  # Ctrl-C; the pool waits for its threads
            runs.ending.set()
            raise

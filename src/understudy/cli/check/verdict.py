"""What two runs come to: the verdict, and what there is to tell about it. Pure: from what was recorded to a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from understudy.cli.check.course import AGAINST, Kill
from understudy.cli.check.records import BESIDE, Comparison, Records, called, compare, unlike_beside
from understudy.cli.check.runs import Ended
from understudy.cli.show import drill_line, seconds

NAMED = 5  # differences that are listed
# In front of the summary of a failure: the runtime's own exceptions (`worker.errors`) say what to change in the script.
_OURS = ("Misuse: ", "UnderstudyError: ", "BadMessage: ", "DonorsDiffer: ", "NotTheSame: ", "OtherBatch: ")


class Verdict(StrEnum):
    BITWISE = "bitwise"
    DIFFERS = "differs"
    REFUSED = "refused"
    NAMED = "named"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


EXIT = {
    Verdict.BITWISE: 0,
    Verdict.DIFFERS: 3,
    Verdict.REFUSED: 4,
    Verdict.NAMED: 4,
    Verdict.FAILED: 5,
    Verdict.INCONCLUSIVE: 6,
}

ADVICE = {
    "register": "What a step goes by and nobody has registered starts afresh on a newcomer. Look for it in what feeds what is named above: "
    "counters, averages, generators, iterators, caches. Give it to job.register, or keep it in job.state(...)",
    "notices": "Each line that was told says what to change",
    "message": "Do what the message says, and check again",
    "drill": "Do what the drill says, and check again",
    "script": "Mend the script: without Understudy's doing it does not run to the end of the check. Its last words are in {output}",
    "short": "Give it more steps (its own argument), or the check fewer (--check-steps)",
    "no steps": "The check sees steps only: does the script call understudy.join(), and is its training step a @job.step (docs/guide.md)?",
    "seed": "Two runs of it, neither of them disturbed, must compute the same: seed what is random, do without the clock, and do not begin "
    "from a snapshot that the run before has saved",
    "standstill": "See {output}. A set-up that takes longer needs a longer --setup-limit",
    "again": "Something else than the check has disturbed it: run the check again",
    "none": "Nothing. What begins behind step {last}, another phase or an evaluation, it has not seen: --check-steps goes further",
}


@dataclass(frozen=True)
class Page:
    """All that is shown; `--json` shows the same."""

    verdict: Verdict
    line: str  # the verdict, in one sentence
    ranks: int
    steps: tuple[int, int]  # before the kill, and in all
    kill: Kill | None = None
    seconds: float | None = None  # of the recovery
    digests: int = 0  # that were the same behind the kill
    differences: list[str] = field(default_factory=list)
    drills: list[str] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)  # name and type of what is registered
    tensors: int = 0  # of rank 0
    bytes: int = 0
    adopted: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what could not be compared
    notices: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # of the incident
    message: str = ""  # why it was refused, or has failed
    advice: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]


class Judge:
    """`before`: committed steps in front of the kill; `last`: in all. `outputs`: where the runs have printed, in their order."""

    def __init__(self, ranks: int, before: int, last: int, outputs: Sequence[str]) -> None:
        self._ranks, self._before, self._last, self._outputs = ranks, before, last, outputs

    def unreached(self, run: Ended, which: int) -> Page:
        """A run that nobody has disturbed yet, and that did not come to where it should. `which`: the first or the second."""
        line, advice, verdict, message = "", "again", Verdict.INCONCLUSIVE, run.message
        steps = run.records.steps
        if run.failure is not None:
            summary = message = str(run.failure["summary"])
            ours = summary.startswith(_OURS)
            verdict, advice = (Verdict.REFUSED, "message") if ours else (Verdict.FAILED, "script")
            who = f"rank {run.failure['rank']}, with {run.failure['step']} steps committed"
            line = f"Understudy does not run this script as it is ({who})" if ours else f"the script fails by itself ({who})"
        elif run.standstill:
            line, advice, message = "the script does not go on", "standstill", run.standstill
        elif run.code:
            verdict, advice = Verdict.FAILED, "script"
            line = f"the job ended with exit code {run.code}, with {steps} steps committed"
        elif not steps:
            line, advice, message = "the script ended without a step", "no steps", ""
        else:
            message = ""
            line, advice = f"the script ended by itself after {steps} steps, and the check needs {self._last}", "short"
        return self._page(verdict, line, run, [advice], which, message=message)

    def doubts(self, reference: Records, run: Ended, kill: Kill) -> bool:
        """Whether all that differs in the run with the kill is what nobody has registered: it may be a clock."""
        if kill.transaction < 0 or run.held:
            return False
        found = compare(reference, run.records, kill.transaction, self._last)
        return bool(found.behind) and all(difference.entry.startswith(BESIDE) for difference in found.behind)

    def disturbed(self, reference: Records, run: Ended, kill: Kill, again: Records | None = None) -> Page:
        """The run with drills and a kill. `again`: of another undisturbed run."""
        against = [drill for drill in run.drills if drill["verdict"] in AGAINST]
        if kill.transaction < 0:
            return self.unreached(run, 1)
        clocks = unlike_beside(reference, again, self._last) if again is not None else set()
        found = compare(reference, run.records, kill.transaction, self._last, clocks)
        rest: dict[str, Any] = {"kill": kill, "seconds": kill.seconds, "left_out": sorted(map(called, found.left_out))}
        struck = f"rank {kill.rank} was killed in step {kill.before + 1}"
        named = ["drill"] * bool(against) + ["notices"] * bool(self._told(run))
        if found.irreproducible:
            first = [difference.told for difference in found.irreproducible[:NAMED]]
            line = f"the script does not compute the same twice: {first[0]}, in front of the kill"
            return self._page(Verdict.INCONCLUSIVE, line, run, ["seed"], 1, differences=first, **rest)
        if found.behind or run.held:
            line = f"{struck}, and behind it the training is another one: {found.behind[0].told}" if found.behind else f"{struck}, and held"
            line = line if not run.held else f"{struck}, and the job is held: {run.standstill}"
            told = _first_of_each(found)
            return self._page(Verdict.DIFFERS, line, run, [*named, "register"], 1, differences=told, message=run.standstill, **rest)
        if not run.reached:
            message = str(run.failure["summary"]) if run.failure is not None else run.standstill or run.message
            line = f"{struck}, and the job did not survive it"
            return self._page(Verdict.REFUSED, line, run, ["message", *named], 1, message=message, **rest)
        if problem := self._incomplete(run, kill, found):
            return self._page(Verdict.INCONCLUSIVE, f"{struck}, and {problem}", run, ["again"], 1, **rest)
        steps = self._last - self._before
        same = f"the {steps} steps behind it are the same bit by bit on {self._ranks} ranks ({found.digests:,} digests)"
        line = f"{struck} and recovered in {seconds(kill.seconds)}; {same}"
        if against:
            line += f"; but a drill has found rank {against[0]['rank']} {against[0]['verdict']}"
            return self._page(Verdict.NAMED, line, run, ["drill"], 1, digests=found.digests, **rest)
        return self._page(Verdict.BITWISE, line, run, ["notices"] if self._told(run) else ["none"], 1, digests=found.digests, **rest)

    def _incomplete(self, run: Ended, kill: Kill, found: Comparison) -> str:
        """Why nothing can be said although nothing differs; empty: it can."""
        if found.missing:
            return found.missing[0]
        if len(run.incidents) != 1 or [part["old_worker"] for part in run.incidents[0]["ranks"]] != [kill.worker]:
            return f"something else happened: {len(run.incidents)} incidents, and the kill should have been the only one"
        wanted = set(range(self._before + 1, self._last + 1))
        return f"of steps {sorted(wanted - found.steps)} nothing was told" if found.steps != wanted or not found.digests else ""

    def _page(self, verdict: Verdict, line: str, run: Ended, advice: list[str], which: int, **more: Any) -> Page:
        records, texts = run.records, [ADVICE[key].format(output=self._outputs[which], last=self._last) for key in dict.fromkeys(advice)]
        return Page(
            verdict,
            line,
            self._ranks,
            (self._before, self._last),
            drills=[*map(drill_line, run.drills), *self._undrilled(more.get("kill"))],
            covered=[f"{name} ({kind})" for name, kind in sorted(records.registered.items())],
            tensors=records.tensors,
            bytes=records.bytes,
            adopted=records.adopted,
            notices=self._told(run),
            notes=[note for incident in run.incidents for note in incident["notes"]],
            advice=texts,
            **more,
        )

    @staticmethod
    def _undrilled(kill: Kill | None) -> list[str]:
        rank = kill.undrilled if kill is not None else None
        return [f"rank {rank} has a role that was not drilled: there were too few steps for it (--check-steps)"] * (rank is not None)

    @staticmethod
    def _told(run: Ended) -> list[str]:
        """Without the good news."""
        return [notice for notice in run.notices if "coverage: every rank has a replica" not in notice]


def _first_of_each(found: Comparison) -> list[str]:
    """Where each entry differs first, the earliest in front."""
    told = {difference.entry: difference.told for difference in reversed(found.behind)}
    ordered = [told[entry] for entry in dict.fromkeys(difference.entry for difference in found.behind)]
    return ordered[:NAMED] + ([f"and {len(ordered) - NAMED} more"] if len(ordered) > NAMED else [])

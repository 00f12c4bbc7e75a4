"""Decide the verdict about two runs, and make the page about it. Pure: from records to a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from understudy.cli import exit_codes
from understudy.cli.check.course import AGAINST
from understudy.cli.check.records import UNREGISTERED, Comparison, Records, called, compare, unlike_unregistered
from understudy.cli.check.runs import Ended
from understudy.cli.kills import Kill, described
from understudy.cli.show import drill_line, seconds
from understudy.messages import coverage, script_check

NAMED = 5  # differences that are listed, at most
SHOWN = 3  # files that one sentence names, at most
# Prefixes of a failure's summary: the runtime's own exceptions (`worker.errors`) name the change to make in the script.
_OURS = ("UsageError: ", "UnderstudyError: ", "BadMessage: ", "DonorMismatch: ", "StateMismatch: ", "BatchMismatch: ")


class Verdict(StrEnum):
    BITWISE = "bitwise"
    DIFFERS = "differs"
    REFUSED = "refused"
    NAMED = "named"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


EXIT = {
    Verdict.BITWISE: exit_codes.DONE,
    Verdict.DIFFERS: exit_codes.DIFFERS,
    Verdict.REFUSED: exit_codes.REFUSED_SCRIPT,
    Verdict.NAMED: exit_codes.REFUSED_SCRIPT,
    Verdict.FAILED: exit_codes.SCRIPT_FAILED,
    Verdict.INCONCLUSIVE: exit_codes.INCONCLUSIVE,
}


@dataclass(frozen=True)
class Page:
    """Everything that is shown; `--json` shows the same."""

    verdict: Verdict
    line: str  # the verdict, in one sentence
    ranks: int
    steps: tuple[int, int]  # before the first kill, and in total
    took: float = 0.0  # seconds of the whole check
    kills: list[Kill] = field(default_factory=list)  # including those whose phase the script did not reach
    digests: int = 0  # equal ones after the first kill
    differences: list[str] = field(default_factory=list)
    drills: list[str] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)  # name and type of registered objects
    tensors: int = 0  # of rank 0
    bytes: int = 0
    adopted: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # entries that could not be compared
    uncovered: list[str] = field(default_factory=list)  # changed by the script but not carried over: likely causes of a difference
    read: list[str] = field(default_factory=list)  # files that the first run has written and the second has read
    notices: list[str] = field(default_factory=list)
    grades: list[str] = field(default_factory=list)  # of each incident, with the reason
    notes: list[str] = field(default_factory=list)  # of the incidents
    message: str = ""  # the reason of a refusal or failure
    advice: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return EXIT[self.verdict]


class Judge:
    """Make the page of a check. `before`: committed steps before the first kill; `last`: of the whole run. `outputs`: the output files of
    the runs, in order.
    """

    def __init__(self, ranks: int, before: int, last: int, outputs: Sequence[str]) -> None:
        self._ranks, self._before, self._last, self._outputs = ranks, before, last, outputs

    def unreached(self, run: Ended, which: int, kills: Sequence[Kill] = ()) -> Page:
        """Return the page about a run that ended too early, before it was disturbed. `which`: the first or the second run. `kills`: those
        that have not happened.
        """
        output, steps, message = self._outputs[which], run.records.steps, ""
        verdict, line, advice = Verdict.INCONCLUSIVE, script_check.NO_STEP(), script_check.NO_STEPS_SEEN()
        if run.failure is not None:
            message = str(run.failure["summary"])
            who = {"rank": run.failure["rank"], "step": run.failure["step"]}
            if message.startswith(_OURS):
                verdict, line, advice = Verdict.REFUSED, script_check.REFUSED(**who), script_check.FOLLOW_MESSAGE()
            else:
                verdict, line, advice = Verdict.FAILED, script_check.SCRIPT_FAILS(**who), script_check.MEND_SCRIPT(output=output)
        elif run.standstill:
            line, advice, message = script_check.SCRIPT_STANDS(), script_check.LOOK_AT_OUTPUT(output=output), run.standstill
        elif run.code:
            verdict, line, message = Verdict.FAILED, script_check.JOB_FAILED(code=run.code, steps=steps), run.message
            advice = script_check.MEND_SCRIPT(output=output)
        elif run.reached:
            line, advice = script_check.NO_KILL(), script_check.OTHER_KILLS()
        elif steps:
            line, advice = script_check.TOO_FEW_STEPS(steps=steps, needed=self._last), script_check.MORE_STEPS()
        return self._page(verdict, line, run, [advice], message=message, kills=list(kills))

    def doubts(self, reference: Records, run: Ended, kills: Sequence[Kill]) -> bool:
        """Return whether only unregistered entries differ in the run with kills: one of them may be a clock."""
        struck = [kill for kill in kills if kill.struck]
        if not struck or run.paused:
            return False
        found = compare(reference, run.records, struck[0].transaction, self._last)
        return bool(found.after) and all(difference.entry.startswith(UNREGISTERED) for difference in found.after)

    def disturbed(
        self, reference: Records, run: Ended, kills: Sequence[Kill], undrilled: int | None = None, again: Records | None = None
    ) -> Page:
        """Return the page about the run with drills and kills. `undrilled`: a rank whose role was not drilled. `again`: another
        undisturbed run.
        """
        against = [drill for drill in run.drills if drill["verdict"] in AGAINST]
        struck = [kill for kill in kills if kill.struck]
        if not struck:
            return self.unreached(run, 1, kills)
        clocks = unlike_unregistered(reference, again, self._last) if again is not None else set()
        unrecorded = {(kill.rank, kill.transaction) for kill in struck if kill.phase == "apply"}
        found = compare(reference, run.records, struck[0].transaction, self._last, clocks, unrecorded)
        rest: dict[str, Any] = {"kills": list(kills), "left_out": sorted(map(called, found.left_out)), "undrilled": undrilled}
        follow = [script_check.FOLLOW_NOTICES()] if self._reported(run) else []
        named = [script_check.FOLLOW_DRILL(), *follow] if against else follow
        if found.irreproducible:
            first = [difference.text for difference in found.irreproducible[:NAMED]]
            line = script_check.IRREPRODUCIBLE(difference=first[0])
            return self._page(Verdict.INCONCLUSIVE, line, run, [script_check.SEED()], differences=first, **rest)
        if found.after or run.paused:
            if run.paused:
                line = script_check.HELD(reason=run.standstill, kills=described(struck))
            else:
                first_unlike = found.after[0]
                before_it = [kill for kill in struck if kill.step <= first_unlike.step] or struck[:1]
                line = script_check.DIFFERS(difference=first_unlike.text, kills=described(before_it[-1:]))
            rest |= {"differences": _first_of_each(found), "message": run.standstill}
            return self._page(Verdict.DIFFERS, line, run, [*named, script_check.REGISTER_STATE()], **rest)
        if not run.reached and run.standstill and struck[-1].seconds is not None:
            look = script_check.LOOK_AT_OUTPUT(output=self._outputs[1])
            return self._page(Verdict.INCONCLUSIVE, script_check.SCRIPT_STANDS(), run, [look, *named], message=run.standstill, **rest)
        if not run.reached:
            message = str(run.failure["summary"]) if run.failure is not None else run.standstill or run.message
            line = script_check.NOT_SURVIVED(kills=described(struck[-1:]))
            return self._page(Verdict.REFUSED, line, run, [script_check.FOLLOW_MESSAGE(), *named], message=message, **rest)
        if problem := self._incomplete(run, struck, found):
            return self._page(Verdict.INCONCLUSIVE, problem, run, [script_check.CHECK_AGAIN()], **rest)
        longest = max((kill.seconds for kill in struck if kill.seconds is not None), default=None)
        same = {"kills": described(struck), "seconds": seconds(longest), "steps": len(self._after(struck)), "ranks": self._ranks}
        rest["digests"], same["digests"] = found.digests, f"{found.digests:,}"
        if against:
            line = script_check.BITWISE_BUT_NAMED(drilled=against[0]["rank"], verdict=against[0]["verdict"], **same)
            return self._page(Verdict.NAMED, line, run, [script_check.FOLLOW_DRILL()], **rest)
        advice = follow or [script_check.NOTHING_TO_CHANGE(last=self._last)]
        return self._page(Verdict.BITWISE, script_check.BITWISE(**same), run, advice, **rest)

    @staticmethod
    def resumed(page: Page, read: list[str]) -> Page:
        """Make the check inconclusive if the second run has read files that the first has written."""
        if not read:
            return page
        shown = f"{', '.join(read[:SHOWN])}{f' and {len(read) - SHOWN} more' if len(read) > SHOWN else ''}"
        if page.verdict not in (Verdict.INCONCLUSIVE, Verdict.FAILED):  # up to the first kill both have computed the same nevertheless
            return replace(page, read=read)
        line, advice = script_check.READ_OF_FIRST(files=shown), script_check.FOLDER_OF_ITS_OWN()
        return replace(page, verdict=Verdict.INCONCLUSIVE, line=line, advice=[advice], read=read)

    def _after(self, struck: Sequence[Kill]) -> set[int]:
        """Return the steps that are compared: those from the first kill on."""
        return set(range(struck[0].step + (struck[0].phase == "between"), self._last + 1))

    def _incomplete(self, run: Ended, struck: Sequence[Kill], found: Comparison) -> str:
        """Return why there is no verdict although nothing differs; empty if there is one."""
        kills = described(struck)
        if found.missing:
            return script_check.RECORDS_DIFFER(difference=found.missing[0], kills=kills)
        lost = [[part["old_worker"] for part in incident["ranks"]] for incident in run.incidents]
        if lost != [[kill.worker] for kill in struck]:
            return script_check.OTHERWISE_DISTURBED(incidents=len(lost), wanted=len(struck), kills=kills)
        wanted = self._after(struck)
        if found.steps != wanted or not found.digests:
            return script_check.STEPS_UNRECORDED(steps=sorted(wanted - found.steps), kills=kills)
        return ""

    def _page(self, verdict: Verdict, line: str, run: Ended, advice: Sequence[str], **more: Any) -> Page:
        records = run.records
        return Page(
            verdict,
            line,
            self._ranks,
            (self._before, self._last),
            drills=[*map(drill_line, run.drills), *self._undrilled(more.pop("undrilled", None))],
            covered=[f"{name} ({kind})" for name, kind in sorted(records.registered.items())],
            tensors=records.tensors,
            bytes=records.bytes,
            adopted=records.adopted,
            notices=self._reported(run),
            uncovered=list(dict.fromkeys(name for one in run.incidents for name in one["uncovered"])),
            grades=_grades(run.incidents),
            notes=list(dict.fromkeys(note for incident in run.incidents for note in incident["notes"])),
            advice=list(advice),
            **more,
        )

    @staticmethod
    def _undrilled(rank: int | None) -> list[str]:
        return [script_check.UNDRILLED(rank=rank)] if rank is not None else []

    @staticmethod
    def _reported(run: Ended) -> list[str]:
        """Return the notices of a run, without those that report success."""
        return [notice for notice in run.notices if coverage.COVERED.code not in notice]


def _grades(incidents: Sequence[dict[str, Any]]) -> list[str]:
    """List the grades with their reasons, each once."""
    numbers: dict[str, list[str]] = {}
    for one in incidents:
        numbers.setdefault(f"{one['grade'] or 'not graded'}: {one['why']}", []).append(str(one["number"]))
    return [f"incident{'s' * (len(of) > 1)} {', '.join(of)}: {grade}" for grade, of in numbers.items()]


def _first_of_each(found: Comparison) -> list[str]:
    """Return the first difference of each entry, the earliest first."""
    texts = {difference.entry: difference.text for difference in reversed(found.after)}
    ordered = [texts[entry] for entry in dict.fromkeys(difference.entry for difference in found.after)]
    return ordered[:NAMED] + ([f"and {len(ordered) - NAMED} more"] if len(ordered) > NAMED else [])

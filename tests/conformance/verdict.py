"""What a script's runs come to, bit by bit.

    bitwise   every rank ends with the state, and has printed the lines, of the run under torchrun
    refused   the undisturbed run ended with the message that the script expects, by its code, before 3 steps were committed
    told      the undisturbed run printed the notice that the script expects, by its code; with kills it may then end, be held, or differ
    named     a drill of the undisturbed run found that the script is not survivable, and said why; with kills it is not
    skipped   it was not run, because a package that it needs is not installed

Everything else is a failure:

    silent    it ends well, and something differs
    missing   it ends well, and a line or a final state is not there although no rank was killed that could have written it
    held      a redo was not what it redoes, or replicas differed: the job waits for a person
    hung      it did not end, or a healthy rank counted as one that hangs
    aborted   a worker died in C++, by a signal that no one sent
    crashed   it ended with another message
    alarm     a drill found something against a script that is bitwise the same with kills
    lost      it ends well, but a worker was lost, or a recovery made, for which no kill is to blame
    idle      too few of its kills struck to say anything
    overrated it is wrong, and every incident before that has the grade proven or drilled
    unsteady  under torchrun it fails, or is not the same twice: the script is wrong

What lines with kills may lack, or have otherwise, and why: a worker that is killed after its vote does not print a step that counts, so a
rank lacks at most one line for each of its kills. If its newcomer enters that iteration, the step may return there what it returned on
another rank; then the incident has a note that says so, and the line is made of that other rank's values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.runs import Line, Ran, Trace
from tests.conformance.scripts import NOT_SILENT, Kill, Script
from understudy.core.model import DrillVerdict, Grade
from understudy.messages import newcomers

BITWISE, REFUSED, TOLD, NAMED = "bitwise", "refused", "told", "named"
SKIPPED = "skipped"
NOT_SILENT_ARE = (BITWISE, REFUSED, TOLD)
AGAINST = (DrillVerdict.DIFFERENT, DrillVerdict.NOT_REPRODUCIBLE)
GOOD = (Grade.PROVEN, Grade.DRILLED)
ENOUGH = 3  # kills that must have struck
REFUSED_BEFORE = 3  # committed steps
_ERROR = re.compile(r"\b(\w*Error|UsageError|\w*Exception|GenerationAborted): \S")
_STEP = re.compile(r"step (\d+)")
BORROWED = newcomers.RESULT_OF_ANOTHER.code  # in a note of an incident


@dataclass(frozen=True)
class Found:
    verdict: str
    why: str = ""
    kills: tuple[Kill, ...] = ()  # that struck

    @property
    def text(self) -> str:
        return f"{self.verdict}: {self.why}" if self.why else self.verdict


def wrong(script: Script, found: Found) -> str:
    """Return the difference from what the script expects; empty: none."""
    expected = NOT_SILENT_ARE if script.expect == NOT_SILENT else (script.expect,)
    return "" if found.verdict in (*expected, SKIPPED) else f"{script.expectation} was expected; {found.text}"


def steady(first: Ran, second: Ran | None = None) -> Found | None:
    """Return what is wrong with the script itself, by its runs under torchrun; None: nothing."""
    for ran in (first, *(() if second is None else (second,))):
        if ran.hung:
            return Found("unsteady", "under torchrun it does not end")
        if ran.code and not _aborted_at_exit(ran):
            return Found("unsteady", f"under torchrun it ends with exit code {ran.code}: {_error(ran)}")
    for rank, lines in first.trace.lines.items():
        keys = [line["key"] for line in lines]
        if double := next((key for key in keys if keys.count(key) > 1), None):
            return Found("unsteady", f"rank {rank} has two lines {double!r} under torchrun")
    if second is not None and (difference := differs(first.trace, second.trace)):
        return Found("unsteady", f"under torchrun it is not the same twice: {difference}")
    return None


def _aborted_at_exit(ran: Ran) -> bool:
    """Every rank has printed its end, and torch itself aborted after that: without `destroy_process_group`, as in many scripts, a
    process group may be taken down while its threads run. On a busy machine one in ten runs of a plain torch script ends so.
    """
    complete = ran.trace.finals.keys() == ran.trace.lines.keys() and bool(ran.trace.finals)
    return complete and "terminate called without an active exception" in ran.output


def undisturbed(script: Script, reference: Ran, ran: Ran) -> Found:
    """Of the run under `understudy run` without kills. BITWISE: nothing is against a run with kills."""
    if script.expect == REFUSED and (found := _refused(script, ran)) is not None:
        return found
    if bad := _ended_badly(ran, "undisturbed"):
        return bad
    if ran.incidents:
        return Found("lost", f"undisturbed, with an incident: {_incident(ran.incidents[0])}")
    if difference := lacks(reference.trace, ran.trace):
        return Found("missing", f"undisturbed: {difference}")
    if difference := differs(reference.trace, ran.trace):
        return Found("silent", f"undisturbed: {difference}")
    return Found(TOLD) if script.expect == TOLD and script.is_said_in(ran.output) else Found(BITWISE)


def _refused(script: Script, ran: Ran) -> Found | None:
    if ran.hung or ran.aborted or not ran.code or not script.is_said_in(ran.output):
        return None
    if ran.trace.steps >= REFUSED_BEFORE:
        return Found("crashed", f"undisturbed: the message comes only after {ran.trace.steps} steps")
    return Found(REFUSED)


def disturbed(script: Script, reference: Ran, ran: Ran, before: Found) -> Found:
    """Judge the run with kills. `before`: the result of the undisturbed one, BITWISE or TOLD."""
    bad = _ended_badly(ran, "with kills")
    if before.verdict == TOLD:
        return bad if bad and bad.verdict not in ("crashed", "held") else Found(TOLD, kills=ran.kills)
    if bad:
        return bad
    causes = [part for incident in ran.incidents for part in incident["ranks"] if part["cause"] != "killed"]
    if causes:
        part = causes[0]
        return Found("hung" if part["cause"] == "hung" else "lost", f"with kills: rank {part['rank']} {part['cause']}", ran.kills)
    killed = [kill.rank for kill in ran.kills]
    if difference := lacks(reference.trace, ran.trace, killed):
        return Found("missing", f"with kills: {difference}", ran.kills)
    if difference := differs(reference.trace, ran.trace, killed, _borrowed(ran)):
        return Found("silent", f"with kills: {difference}", ran.kills)
    enough = len(script.own) or ENOUGH
    if len(ran.kills) < enough:
        return Found("idle", f"{len(ran.kills)} of at least {enough} kills struck", ran.kills)
    return Found(BITWISE, kills=ran.kills)


def named(found: Found, drills: Sequence[Mapping[str, Any]]) -> Found:
    """Judge the run with kills, by `found` and the drills of the undisturbed run."""
    against = [of_drill(drill) for drill in drills if drill["verdict"] in AGAINST]
    if not against or found.verdict in (TOLD, "unsteady"):
        return found
    if found.verdict in (BITWISE, "idle"):
        return Found("alarm", against[0], found.kills)
    return Found(NAMED, f"{against[0]}; {found.text}", found.kills)


def of_drill(drill: Mapping[str, Any]) -> str:
    """In words."""
    detail = f": {drill['detail']}" if drill["detail"] else ""
    return f"{drill['verdict'] or 'not over'}@{drill['step']}:{drill['rank']}{detail}"


def _ended_badly(ran: Ran, which: str) -> Found | None:
    if ran.aborted:
        return Found("aborted", f"{which}: {ran.aborted}", ran.kills)
    if ran.held:
        return Found("held", f"{which}: {ran.held}", ran.kills)
    if ran.hung:
        return Found("hung", f"{which}: at the end of its output {ran.message!r}", ran.kills)
    if ran.code:
        return Found("crashed", f"{which}, exit code {ran.code}: {_error(ran)}", ran.kills)
    return None


def _error(ran: Ran) -> str:
    """The most informative line: the last exception, else the last line."""
    errors = [line for line in ran.output.splitlines() if _ERROR.search(line) and "ChildFailedError" not in line]
    return (errors[-1] if errors else ran.message).strip()


def _incident(incident: Mapping[str, Any]) -> str:
    return f"rank {incident['rank']}, {incident['cause']}, at transaction {incident['transaction']}"


def lacks(wanted: Trace, found: Trace, killed: Sequence[int] = ()) -> str:
    """Describe lines that are missing; empty: none. `killed`: a rank for each kill."""
    for rank in wanted.finals:
        if rank not in found.finals:
            return f"rank {rank} has no final state"
    for rank, lines in wanted.lines.items():
        there = {line["key"] for line in found.lines.get(rank, ())}
        missing = [line["key"] for line in lines if line["key"] not in there]
        if len(missing) > killed.count(rank):
            return f"rank {rank} did not tell of {', '.join(missing)}, killed {killed.count(rank)} times"
    return ""


def differs(wanted: Trace, found: Trace, killed: Sequence[int] = (), borrowed: int = 0) -> str:
    """Describe lines that differ; empty: none. `borrowed`: results of other ranks that the incidents note."""
    return next((unlike.text for unlike in _unlike(wanted, found, killed, borrowed)), "")


@dataclass(frozen=True)
class _Unlike:
    """Hold one difference between a run and its reference."""

    text: str
    step: float  # after so many committed steps; infinity: it is not known


def _unlike(wanted: Trace, found: Trace, killed: Sequence[int], borrowed: int) -> Iterator[_Unlike]:
    taken = 0
    for rank in sorted(found.lines):
        own = {line["key"]: line for line in wanted.lines.get(rank, ())}
        of_rank = 0
        again: list[Line] = []  # without a loop every newcomer of the rank prints all of its lines once more
        for line in found.lines[rank]:
            if line == own.get(line["key"]) or line in again:
                continue
            if line["key"] in own and _of_others(line, wanted, rank) and taken < borrowed and of_rank < killed.count(rank):
                taken, of_rank = taken + 1, of_rank + 1
                again.append(line)
                continue
            step = _STEP.fullmatch(line["key"])
            text = f"rank {rank}, {line['key']}: {_parts(own.get(line['key']), line)}"
            yield _Unlike(text, int(step[1]) if step else math.inf)
    for rank in sorted(found.finals):
        mine = wanted.finals.get(rank)
        if mine != found.finals[rank]:
            yield _Unlike(f"rank {rank}, final state: {_parts(mine, found.finals[rank])}", math.inf)


def overrated(reference: Ran, ran: Ran) -> str:
    """That a run is wrong although every incident before that is proven or drilled, in words; empty: it is not."""
    killed = [kill.rank for kill in ran.kills]
    first = min(_unlike(reference.trace, ran.trace, killed, _borrowed(ran)), key=lambda unlike: unlike.step, default=None)
    before = [incident for incident in ran.incidents if first is not None and incident["step"] < first.step]
    if first is None or not before or any(incident["grade"] not in GOOD for incident in before):
        return ""
    grades = [f"incident {incident['number']} is {incident['grade']}: {incident['why']}" for incident in before]
    return f"{first.text}; yet {'; '.join(grades)}"


def _borrowed(ran: Ran) -> int:
    """Results of other ranks that the incidents note."""
    return [BORROWED in note for incident in ran.incidents for note in incident["notes"]].count(True)


def _of_others(line: Line, wanted: Trace, rank: int) -> bool:
    """Return whether every value of a line is the rank's own or one that another rank wrote at that place."""
    at_place = [other for lines in wanted.lines.values() for other in lines if other["key"] == line["key"]]
    mine = next(other for other in wanted.lines[rank] if other["key"] == line["key"])
    return line.keys() == mine.keys() and all(any(other.get(name) == value for other in at_place) for name, value in line.items())


def _parts(wanted: Mapping[str, Any] | None, found: Mapping[str, Any], path: str = "") -> str:
    """The names of the parts that differ."""
    if wanted is None:
        return "the undisturbed run under torchrun has none"
    names = []
    for name in dict.fromkeys([*wanted, *found]):
        one, other = wanted.get(name), found.get(name)
        if one == other:
            continue
        inside = isinstance(one, dict) and isinstance(other, dict)
        names.append(_parts(one, other, f"{path}{name}, ") if inside and one and other else f"{path}{name}")
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return "; ".join(names[:4]) + more

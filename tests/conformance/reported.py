"""Judges scripts that hide state (`# expect: not silent`): it is carried over, reported by its name, or refused; never silently wrong.

Each state feeds the parameter `probes.NAME` of its script (`fuzz/composing.py`), and each line of a step has the values of all of them. So
a wrong state is known by its name, and one state that is reported does not excuse another one:

    bitwise   as without kills
    told      parameters differ, and a message names the state, or the parameter, of each
    refused   the script was ended by a message that gives the reason
    silent    a parameter differs that no message names, or anything else differs
    unclear   a parameter differs that no message names, but something is reported that may be it

Hung, aborted, crashed, missing, lost, idle, overrated and unsteady have their meanings from `verdict`. A held job counts as told: it waits
for a person, and its message has the step that differs.

A state is named by a line of the output with a message's code and the name, or by a note of an incident. Messages that it *is* carried over
do not count (`CARRIED`).

A drill that fails, or a redo that differs, may name nothing but the number of a collective. That is enough for a script with one hidden
state only (`unclear` in others: try each state alone).

Limits: a job that is refused or held has not shown anything about the states that are read later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conformance import runs, verdict
from tests.conformance.drills import around
from tests.conformance.runs import Ran, Trace
from tests.conformance.scripts import Script
from tests.conformance.verdict import BITWISE, REFUSED, TOLD, Found
from understudy.messages import coverage, disputes, drills, transactions

DRILLS = 2
_PROBE = re.compile(r"\bprobes\.(\w+)")
_CODE = re.compile(r"\bUS\d{4}\b")
_REFUSED = re.compile(r"\b(UsageError|UnderstudyError|GenerationAborted)\S*: (US\d{4})|(US\d{4}).*; the job ends")
CARRIED = (coverage.ADOPTED.code, transactions.CHANGES_AFTER_VOTE.code, transactions.CHANGES_AND_RUNS_AGAIN.code)
SUSPICIONS = tuple(
    message.code
    for message in (
        drills.NOT_SURVIVABLE,
        drills.NOT_REPRODUCIBLE,
        disputes.HELD,
        disputes.REDO_DIFFERS,
        disputes.REDO_HELD,
        disputes.REDO_NOT_REPRODUCIBLE,
        disputes.REDO_UNPROVEN,
        disputes.REDO_AS_DRILLED,
    )
)


def attempt(script: Script, folder: Path, say: Callable[[str], None]) -> tuple[Found, Ran | None]:
    """Run it under torchrun and with its kills, and return the verdict with the run that has kills, if there was one."""
    say("under torchrun")
    reference = runs.reference(script)
    if bad := verdict.steady(reference):
        return bad, None
    say(f"with {len(script.kills)} kills")
    places = around(script.kills)
    ran = runs.understudy(script, folder / "disturbed", script.kills, places[:1] + places[1:][-(DRILLS - 1) :])
    found = judged(script, reference, ran)
    if found.verdict in ("silent", "unclear", "overrated"):
        say("again under torchrun")
        found = verdict.steady(reference, runs.torchrun(script, folder / "again")) or found
    return found, ran


def judged(script: Script, reference: Ran, ran: Ran) -> Found:
    found = verdict.disturbed(script, reference, ran, Found(BITWISE))
    if found.verdict == "held":
        found = Found(TOLD, found.why, ran.kills)
    elif found.verdict == "crashed" and (refusal := _refusal(ran)):
        found = Found(REFUSED, refusal, ran.kills)
    elif found.verdict == "silent":
        differing = differences(reference.trace, ran.trace)
        unnamed = {name: step for name, step in differing.items() if not is_named(name, ran)}
        suspected = "" not in unnamed and any(code in ran.output for code in SUSPICIONS)
        known = TOLD if not unnamed or (suspected and len(_states(reference)) == 1) else "unclear" if suspected else "silent"
        found = Found(known, _listed(unnamed or differing), ran.kills)
    if why := verdict.overrated(reference, ran):
        return Found("overrated", f"{_listed(differences(reference.trace, ran.trace))}: {why}", ran.kills)
    return found


def _states(reference: Ran) -> set[str]:
    return {part for lines in reference.trace.lines.values() for line in lines if line["key"].startswith("step ") for part in line} - {
        "key"
    }


def differences(wanted: Trace, found: Trace) -> dict[str, float]:
    """Return the names of the states that are wrong, and "" for anything else, with the first step after which they are."""
    first: dict[str, float] = {}

    def note(name: str, step: float) -> None:
        first[name] = min(step, first.get(name, math.inf))

    for rank, lines in found.lines.items():
        known = {line["key"]: line for line in wanted.lines.get(rank, ())}
        for line in lines:
            own = known.get(line["key"], {})
            number = float(line["key"].split()[-1]) if line["key"].startswith("step ") else math.inf
            for part in {*own, *line}:
                if own.get(part) != line.get(part):
                    note(part if line["key"].startswith("step ") else "", number)
    for rank, final in found.finals.items():
        for part, value in final.items():
            for name in _differing(wanted.finals.get(rank, {}).get(part), value):
                probe = _PROBE.search(name)
                if probe or not first:  # the optimizer's moments have no names, and differ where a parameter does
                    note(probe[1] if probe else "", math.inf)
    return first


def _differing(one: object, other: object) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return [] if one == other else [""]


def is_named(name: str, ran: Ran) -> bool:
    word = re.compile(rf"(?<![a-z]){name}(?![a-z])", re.IGNORECASE)
    lines = [line for line in ran.output.splitlines() if (code := _CODE.search(line)) and code[0] not in CARRIED]
    notes = [note for incident in ran.incidents for note in incident["notes"]]
    return bool(name) and any(word.search(text) for text in (*lines, *notes))


def culprits(found: Found) -> Sequence[str]:
    """Return the names of the states of a verdict `silent`, `unclear` or `overrated`."""
    return tuple(dict.fromkeys(re.findall(r"([a-z]+) after step", found.why)))


def _listed(differing: dict[str, float]) -> str:
    parts = [f"{name or 'something else'} after step {step:g}" for step, name in sorted((step, name) for name, step in differing.items())]
    return ", ".join(parts)


def _refusal(ran: Ran) -> str:
    return next((line.strip() for line in reversed(ran.output.splitlines()) if _REFUSED.search(line)), "")

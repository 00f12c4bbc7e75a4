"""The results of the suite in the evidence and for a terminal."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from scripts.evidence import record as evidence
from scripts.evidence.store import FOLDER, load

from tests.conformance.verdict import BITWISE, BORROWED
from understudy.core.model import Grade
from understudy.messages import grades
from understudy.messages.base import CODE

Values = Mapping[str, Any]  # of `suite.Result.values`
_FIRST = "first step: "
_REASONS = {
    _FIRST: "a loss in the first step of the job: only a part of its redo can be compared, and later drills do not repeat that step",
    grades.NOT_DRILLED.code: "nothing, or not all, could be compared, and no drill of the role covers all that changes by then",
    grades.WARNED.code: "the job, or the newcomer, had warned that the newcomer lacks some state",
    grades.UNCOVERED.code: "the script changes state that is known not to be copied to a newcomer",
    grades.SECTION.code: "a section: drills compare only steps",
    grades.NOT_COMPARED.code: "a survivor had called no collective before the loss whose input could be compared",
    grades.REGISTERED_SINCE.code: "as the second row, and the registered state has changed before a drill was due",
    grades.DRILL_FAILED.code: "a drill had found a difference",
}


def elsewhere(results: Sequence[Values], *folders: Path) -> list[dict[str, Any]]:
    """Return the same without these folders, and folders in that for temporary files, at the beginning of paths: they mean something on
    this machine only.
    """
    text = json.dumps(results)
    for folder in folders:
        text = text.replace(json.dumps(f"{folder}/")[1:-1], "")
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/[\w.-]+/", "", text)  # which a script has made
    found: list[dict[str, Any]] = json.loads(text)
    return found


def record(results: Sequence[Values], commit: str, names: Collection[str], folder: Path = FOLDER) -> None:
    """Put results of `commit` into the evidence, in place of earlier ones of the same scripts, and write its page. `names`: of all scripts
    that there are; results of others are dropped.
    """
    shown = ("script", "group", "about", "expected", "found", "why", "wrong", "drills", "kills", "grades", "alone")
    known = {str(row["script"]): row for row in load("conformance", folder)["scripts"]["rows"] if row["script"] in names}
    for result in results:
        known[str(result["script"])] = {name: result[name] for name in shown if result.get(name) or name == "wrong"} | {"commit": commit}
    rows = sorted(known.values(), key=lambda row: (row["group"], row["script"]))
    commits = Counter(str(row.get("commit", "")) for row in rows)
    more = {"command": "make conformance", "commit": " ".join(filter(None, commits)), "notes": [f"{summary(rows)}."]}
    evidence.record("conformance", "scripts", rows, more=more, folder=folder)
    reasons = [(reason, str(count)) for reason, count in _reasons(rows).most_common()]
    notes = [f"{found.removeprefix('; ')}."] if (found := _grades(rows)) else []
    evidence.record("conformance", "grades", reasons, ("reason for unproven", "incidents"), more={**more, "notes": notes}, folder=folder)


def _found(result: Values) -> str:
    text = f"{result['found']}: {result['why']}" if result["why"] else str(result["found"])
    if result["alone"]:
        text += "; alone: " + ", ".join(f"{kills} {verdict.partition(':')[0]}" for kills, verdict in result["alone"].items())
    return f"**WRONG** {text}" if result["wrong"] else text


def summary(results: Sequence[Values]) -> str:
    counts = Counter(str(result["found"]) for result in results)
    wrong = sum(bool(result["wrong"]) for result in results)
    found = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"{len(results)} script{'s' * (len(results) != 1)}: {found}; {wrong} not as expected{_grades(results)}"


def _incidents(results: Sequence[Values]) -> list[str]:
    """Return the grades of the incidents of scripts that are bitwise, without those in which a rank was given another rank's result: they
    are not. One of a loss in the job's first step begins with its own mark.
    """
    found = []
    for result in results:
        first = "@0:" in next(iter(result.get("kills", ())), "")
        given = result.get("grades", ()) if result["found"] == BITWISE else ()
        found += [_FIRST * (first and not number) + grade for number, grade in enumerate(given) if BORROWED not in grade]
    return found


def _reasons(results: Sequence[Values]) -> Counter[str]:
    """Count the incidents that are unproven, by the first code in the reason; in the first step, which no later drill repeats, by that."""
    unproven = [grade for grade in _incidents(results) if grade.removeprefix(_FIRST).startswith(Grade.UNPROVEN)]
    codes = [_FIRST if grade.startswith(_FIRST) else CODE.findall(grade)[0] for grade in unproven]
    return Counter(_REASONS[code] for code in codes)


def _grades(results: Sequence[Values]) -> str:
    found = [grade.removeprefix(_FIRST).partition(":")[0] for grade in _incidents(results)]
    if not found:
        return ""
    counts = Counter(found)
    parts = ", ".join(f"{counts[grade]} {grade}" for grade in Grade)
    good = counts[Grade.PROVEN] + counts[Grade.DRILLED]
    return f"; {len(found)} incidents of scripts that are bitwise: {parts} ({100 * good / len(found):.1f} % proven or drilled)"


def shown(results: Sequence[Values]) -> Table:
    """For a terminal."""
    table = Table(title=summary(results), title_justify="left")
    for column in ("group", "script", "expected", "found", "kills"):
        table.add_column(column, overflow="fold")
    for result in results:
        found = Text(_found(result).replace("**", ""), style="red" if result["wrong"] else "green" if result["found"] == "bitwise" else "")
        table.add_row(result["group"], result["script"], result["expected"], found, str(len(result["kills"])))
    return table

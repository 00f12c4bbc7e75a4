"""The results of the suite in the evidence and for a terminal."""

from __future__ import annotations

import json
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

Values = Mapping[str, Any]  # of `suite.Result.values`


def elsewhere(results: Sequence[Values], *folders: Path) -> list[dict[str, Any]]:
    """Return the same without these folders at the beginning of paths: they mean something on this machine only."""
    text = json.dumps(results)
    for folder in folders:
        text = text.replace(json.dumps(f"{folder}/")[1:-1], "")
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


def _grades(results: Sequence[Values]) -> str:
    """Of the incidents of scripts that are bitwise, without those in which a rank was given another rank's result: they are not."""
    every = [grade for result in results if result["found"] == BITWISE for grade in result.get("grades", ())]
    grades = [grade.partition(":")[0] for grade in every if BORROWED not in grade]
    if not grades:
        return ""
    counts = Counter(grades)
    parts = ", ".join(f"{counts[grade]} {grade}" for grade in Grade)
    good = counts[Grade.PROVEN] + counts[Grade.DRILLED]
    return f"; {len(grades)} incidents of scripts that are bitwise: {parts} ({100 * good / len(grades):.1f} % proven or drilled)"


def shown(results: Sequence[Values]) -> Table:
    """For a terminal."""
    table = Table(title=summary(results), title_justify="left")
    for column in ("group", "script", "expected", "found", "kills"):
        table.add_column(column, overflow="fold")
    for result in results:
        found = Text(_found(result).replace("**", ""), style="red" if result["wrong"] else "green" if result["found"] == "bitwise" else "")
        table.add_row(result["group"], result["script"], result["expected"], found, str(len(result["kills"])))
    return table

"""The results of the suite as a document and for a terminal."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from tests.conformance.verdict import BITWISE, BORROWED
from understudy.core.model import Grade

Values = Mapping[str, Any]  # of `suite.Result.values`

HEAD = """# Conformance

One small script for each thing that real training scripts do, in `tests/conformance/scripts/`. Each runs three times: under torchrun,
under `understudy run` with drills of up to three ranks, and there with its workers killed one after another, with drills in between, in
different phases (in the first step, in a forward and the newcomer that comes of it, in the vote and as it begins, in an evaluation, after
the vote, between steps, two ranks at once, in a backward). All that the ranks tell in each step or evaluation, and their whole state at
the end, is compared with the run under torchrun, bit by bit.

| verdict | meaning |
|---|---|
| bitwise | all three runs are the same, bit by bit |
| refused | the undisturbed run ends with a message (its code) that names what is wrong, before its third step is committed |
| told | the undisturbed run prints a notice (its code) that names what would not survive, and nothing was killed yet |
| named | a drill in the undisturbed run says that the script is not survivable as it is, and why, and nothing was killed yet |
| anything else | a failure |

Failures are named, too: **silent** (it differs without a word), **missing** (it did not tell of something), **held** (a redo is not what
it redoes, and the job waits for a person), **hung**, **aborted** (a worker died in C++), **crashed** (another message), **alarm** (a
drill is against a script that is bitwise), **overrated** (it is wrong, and every incident before that is graded proven or drilled),
**lost** (an incident for which no kill is to blame), **idle** (too few kills were reached),
**unsteady** (the script itself is not the same twice). A kill is written as POINT@STEP:RANK, at a point of `understudy chaos`; a drill as
VERDICT@STEP:RANK, with what it says beside that.
"""


def elsewhere(results: Sequence[Values], *folders: Path) -> list[dict[str, Any]]:
    """Return the same without these folders at the beginning of paths: they mean something on this machine only."""
    text = json.dumps(results)
    for folder in folders:
        text = text.replace(json.dumps(f"{folder}/")[1:-1], "")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def document(results: Sequence[Values], how: str, torch: str) -> str:
    """Markdown. `how`: the command, in Markdown."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = [HEAD, f"Made by {how} with torch {torch} on {today}: {summary(results)}.", ""]
    for group, members in groupby(results, key=lambda result: str(result["group"])):
        text += [
            f"## {group[:1].upper()}{group[1:]}",
            "",
            "| script | what it does | expected | found | drills | kills that struck |",
            "|---|---|---|---|---|---|",
        ]
        for result in members:
            cells = (
                f"`{result['script']}`",
                result["about"],
                result["expected"],
                _found(result),
                "; ".join(result["drills"]) or "-",
                ", ".join(result["kills"]) or "-",
            )
            text.append(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |")
        text.append("")
    return "\n".join(text)


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

"""The ways to show the rows of an entry as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from scripts.evidence.store import Entry

WORDS = 10  # of what a conformance script does
LITTLE = re.compile(r"(a|an|and|as|at|by|for|from|in|is|its|of|on|or|than|that|the|to|which|with)", re.IGNORECASE)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(columns), "|".join("---" for _ in columns)]
    lines += [" | ".join(str(cell).replace("|", r"\|") for cell in row) for row in rows]
    return "\n".join(f"|{line}|" if line.startswith("---") else f"| {line} |" for line in lines)


def plain(entry: Entry) -> str:
    columns: list[str] = entry["columns"]
    shown = [columns.index(name) for name in entry.get("shown", columns)]
    rows = [[row[at] for at in shown] for row in entry["rows"] if row[0] not in entry.get("hidden", ())]
    return table([columns[at] for at in shown], rows) if shown and rows else ""


def model(entry: Entry) -> str:
    """The rows of a group as one: sums, and the longest path."""
    rows: list[dict[str, Any]] = entry["rows"]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    lines = [_model_row(group, [row for row in rows if row["group"] == group]) for group in groups]
    lines.append(_model_row("all", rows))
    return table(["what happens", "rows", "states", "transitions", "longest path"], lines)


def _model_row(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    states, transitions = (sum(int(row[field]) for row in rows) for field in ("states", "transitions"))
    return [name, f"{len(rows)}", f"{states:,}", f"{transitions:,}", f"{max(int(row['longest']) for row in rows)}"]


def matrix(entry: Entry) -> str:
    """The faults that have the same outcomes in all cells are one row. Columns: parallelism, fault, and one for each phase."""
    phases: list[str] = entry["columns"][2:]
    modes = list(dict.fromkeys(row[0] for row in entry["rows"]))
    outcomes = {(row[1], row[0]): row[2:] for row in entry["rows"]}
    faults: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for fault in dict.fromkeys(row[1] for row in entry["rows"]):
        faults.setdefault(tuple(tuple(outcomes.get((fault, mode), [""] * len(phases))) for mode in modes), []).append(f"`{fault}`")
    rows = [[_outcomes(cells, modes, phases), ", ".join(names)] for cells, names in faults.items()]
    reasons = [f"({number}) Not applicable: {reason}." for number, reason in enumerate(entry.get("reasons", ()), 1)]
    return "\n\n".join([table(["outcome", "faults"], rows), *reasons])


def _outcomes(cells: Sequence[Sequence[str]], modes: Sequence[str], phases: Sequence[str]) -> str:
    """The commonest outcome first, and where it is another."""
    counts = Counter(outcome for row in cells for outcome in row)
    (usual, _), *others = counts.most_common()
    text = [usual]
    for outcome, _ in others:
        found = {
            mode: ", ".join(phase for phase, cell in zip(phases, row, strict=True) if cell == outcome)
            for mode, row in zip(modes, cells, strict=True)
        }
        where = {mode: at for mode, at in found.items() if at}
        if len(set(where.values())) > 1:
            text.append(f"{outcome} in " + "; ".join(f"{at} ({mode})" for mode, at in where.items()))
        else:
            (at,) = set(where.values())
            text.append(f"{outcome} in {at}" + f" ({', '.join(where)})" * (len(where) < len(modes)))
    return "; ".join(text)


def outcomes(entry: Entry) -> str:
    """The faults of an outcome in one row. Columns: the fault, any others, a detail, and the outcome."""
    found: dict[str, list[str]] = {}
    for fault, *_, detail, outcome in entry["rows"]:
        found.setdefault(outcome, []).append(f"{fault} ({detail})")
    first, *_, detail, last = entry["columns"]
    return table([last, f"{first} ({detail})"], [[outcome, "; ".join(faults)] for outcome, faults in found.items()])


def groups(entry: Entry) -> str:
    """Conformance scripts by group and verdict."""
    results: list[dict[str, Any]] = entry["rows"]
    verdicts = [verdict for verdict, _ in Counter(result["found"] for result in results).most_common()]
    rows = [_counts(_title(group), members, verdicts) for group, members in _grouped(results)]
    return table(["group", "scripts", *verdicts, "not as expected"], [*rows, _counts("all", results, verdicts)])


def scripts(entry: Entry) -> str:
    """A line for each conformance script."""
    graded = any(result.get("grades") for result in entry["rows"])
    text = []
    for group, members in _grouped(entry["rows"]):
        lines = [_line(result) + [_grades(result)] * graded for result in members]
        text += [f"## {_title(group)}", table(["script", "what it does", "verdict", *(["grades"] * graded)], lines)]
    return "\n\n".join(text)


def _line(result: Mapping[str, Any]) -> list[str]:
    return [f"`{result['script']}`", brief(result["about"]).replace("__", r"\_\_"), _verdict(result)]


def _grouped(results: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(group, list(members)) for group, members in groupby(results, key=lambda result: str(result["group"]))]


def _title(group: str) -> str:
    return group.upper() if group in ("ddp", "fsdp") else group.capitalize()


def _counts(name: str, results: Sequence[Mapping[str, Any]], verdicts: Sequence[str]) -> list[str]:
    counts = Counter(result["found"] for result in results)
    return [name, f"{len(results)}", *(f"{counts[verdict]}" for verdict in verdicts), f"{sum(bool(result['wrong']) for result in results)}"]


def _verdict(result: Mapping[str, Any]) -> str:
    code = re.search(r"US\d{4}", result["expected"])
    text = f"{result['found']} {code[0]}" if code and result["expected"].startswith(result["found"]) else str(result["found"])
    return f"**WRONG** {text}, expected {result['expected']}" if result["wrong"] else text


def _grades(result: Mapping[str, Any]) -> str:
    counts = Counter(grade.partition(":")[0] for grade in result.get("grades", ()))
    return ", ".join(f"{count} {grade}" for grade, count in counts.items()) or "-"


def brief(about: str) -> str:
    """Return at most ten words: up to the end of a clause if there is one, else cut, with an ellipsis."""
    words = about.strip().rstrip(".").split()
    if len(words) <= WORDS:
        return " ".join(words)
    ends = [number for number, word in enumerate(words[:WORDS], 1) if word[-1] in ":;" or words[number].startswith("(")]
    if ends and ends[-1] >= 4:
        return " ".join(words[: ends[-1]]).rstrip(":;")
    cut = words[:WORDS]
    while len(cut) > 1 and LITTLE.fullmatch(cut[-1]):
        cut.pop()
    return " ".join(cut).rstrip(",:;.") + " …"


VIEWS: dict[str, Callable[[Entry], str]] = {
    "plain": plain,
    "model": model,
    "matrix": matrix,
    "outcomes": outcomes,
    "groups": groups,
    "scripts": scripts,
}

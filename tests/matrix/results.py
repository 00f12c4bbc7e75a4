"""What came of a cell, and the table of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tests.matrix.cells import PARALLEL, PHASES, RANKS, Cell
from understudy.core.model import Grade


@dataclass
class Result:
    cell: Cell
    outcome: str = ""  # an outcome of the registry; empty: none, or not applicable
    seconds: float | None = None  # of the incident
    steps: tuple[int, int] = (0, 0)  # compared with those of the undisturbed run: from after the first to the second
    grades: tuple[str, ...] = ()  # of its incidents
    message: str = ""  # how the job ended, of a fault that ends it
    wrong: str = ""

    @property
    def text(self) -> str:
        if self.cell.why_not:
            return "-"
        graded = f" ({', '.join(self.grades)})" if self.grades else ""
        return f"WRONG: {self.wrong}{graded}" if self.wrong else f"{self.outcome}{graded}"

    def values(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        del found["cell"]
        return {"parallelism": self.cell.mode, "phase": self.cell.phase, "fault": self.cell.fault, "why_not": self.cell.why_not, **found}


def table(results: Iterable[Result]) -> str:
    """Markdown: one table for each way to be parallel, and the reasons for what does not apply."""
    known = list(results)
    text = []
    for mode in dict.fromkeys(result.cell.mode for result in known):
        mine = {(result.cell.fault, result.cell.phase): result for result in known if result.cell.mode == mode}
        reasons: dict[str, int] = {}
        phases = [phase for phase in PHASES if any(of == phase for _, of in mine)]
        text += [f"**{PARALLEL[mode]}**", "", f"| fault | {' | '.join(phases)} |", f"|---|{'---|' * len(phases)}"]
        for fault in dict.fromkeys(fault for fault, _ in mine):
            row = [_shown(mine.get((fault, phase)), reasons) for phase in phases]
            text.append(f"| `{fault}` | {' | '.join(row)} |")
        text += ["", *(f"{number}: not applicable: {reason}." for reason, number in reasons.items()), ""]
    return "\n".join(text)


def outcomes(results: Iterable[Result]) -> tuple[list[str], list[list[str]], list[str]]:
    """Columns, a row for each fault in each way to be parallel, and the reasons for what does not apply, as the evidence has them."""
    known = list(results)
    found = {(one.cell.mode, one.cell.fault, one.cell.phase): one for one in known}
    reasons: dict[str, int] = {}
    rows = []
    for mode, fault in dict.fromkeys((one.cell.mode, one.cell.fault) for one in known):
        cells = [found.get((mode, fault, phase)) for phase in PHASES]
        rows.append([PARALLEL[mode], fault, *(_outcome(cell, reasons) for cell in cells)])
    return ["parallelism", "fault", *PHASES], rows, list(reasons)


def _outcome(result: Result | None, reasons: dict[str, int]) -> str:
    return "**WRONG**" if result is not None and result.wrong else _shown(result, reasons).partition(" (")[0]


def _shown(result: Result | None, reasons: dict[str, int]) -> str:
    if result is None:
        return ""
    if result.cell.why_not:
        return f"({reasons.setdefault(result.cell.why_not, len(reasons) + 1)})"
    return result.text


def summary(results: Iterable[Result]) -> str:
    known = list(results)
    applied = [result for result in known if not result.cell.why_not]
    wrong = [result for result in applied if result.wrong]
    steps = sum(max(0, result.steps[1] - result.steps[0]) for result in applied)
    text = f"{len(known)} cells: {len(applied)} tried, {len(known) - len(applied)} not applicable; "
    counts = Counter(grade for result in applied for grade in result.grades)
    text += f"incidents: {', '.join(f'{counts[grade]} {grade}' for grade in Grade)}; "
    text += f"{steps} steps of {RANKS} ranks compared bit by bit; "
    return text + (f"{len(wrong)} WRONG" if wrong else "all identical to the undisturbed run")

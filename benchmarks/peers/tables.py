"""Make Markdown tables from the figures of all repeats. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Figures:
    """The figures of one system, one value for each fault (the first five) or each run. Ratios are to the ideal run of the same repeat."""

    full: list[float] = field(default_factory=list)  # seconds
    own: list[float] = field(default_factory=list)  # the same in steady steps of the same run
    new: list[float] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)
    redone: list[float] = field(default_factory=list)  # steps
    dropped: list[float] = field(default_factory=list)  # batches of single ranks in a whole run
    bitwise: list[bool] = field(default_factory=list)
    worker: list[float] = field(default_factory=list)  # MiB
    job: list[float] = field(default_factory=list)  # MiB for each rank
    steady: list[float] = field(default_factory=list)  # seconds
    steady_ratio: list[float] = field(default_factory=list)
    completion: list[float] = field(default_factory=list)  # ratio
    goodput: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unrecovered: int = 0  # faults from which the job did not recover completely


def spread(values: Sequence[float], digits: int = 2, factor: float = 1.0) -> str:
    """Format `median (lowest-highest)`; "" without values."""
    if not values:
        return ""
    low, middle, high = (f"{value * factor:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return middle if len(values) == 1 or low == high else f"{middle} ({low}-{high})"


def all_of(values: Sequence[bool]) -> str:
    if not values:
        return ""
    if all(values) or not any(values):
        return "yes" if all(values) else "no"
    return f"{sum(values)} of {len(values)}"


COLUMNS = (
    "system",
    "fault to full strength, s",
    "the same in its own steps",
    "to a new step, s",
    "pause, s",
    "steps redone",
    "batches dropped in a run",
    "global batch kept",
    "final parameters bitwise",
    "MiB per rank: worker; all",
    "step, ms",
    "step / ideal",
    "completion / ideal",
    "goodput",
)


def row(name: str, figures: Figures) -> list[str]:
    memory = [spread(figures.worker, 0), spread(figures.job, 0)]
    return [
        name,
        spread(figures.full),
        spread(figures.own, 1),
        spread(figures.new),
        spread(figures.pause),
        spread(figures.redone, 0),
        spread(figures.dropped, 0),
        all_of([dropped == 0 for dropped in figures.dropped]),
        all_of(figures.bitwise),
        "; ".join(memory) if all(memory) else "",
        spread(figures.steady, 0, 1000),
        spread(figures.steady_ratio),
        spread(figures.completion),
        spread(figures.goodput),
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def table(systems: dict[str, Figures], cannot: dict[str, str]) -> str:
    """Return a table of all systems, and below it why one has no row or a shorter one."""
    text = markdown([COLUMNS, *(row(name, figures) for name, figures in systems.items())])
    notes = [f"{name}: {reason}" for name, reason in cannot.items()]
    for name, figures in systems.items():
        notes += [f"{name}: a run {problem}" for problem in figures.problems]
        if figures.unrecovered:
            notes.append(f"{name}: {figures.unrecovered} faults after which it was not at full strength before the run's end")
    return "\n".join([text, *(f"- {note}" for note in notes)] if not notes else [text, "", *(f"- {note}" for note in notes)])

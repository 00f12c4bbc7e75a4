"""Plot a comparison with matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from peers.tables import Figures


def _points(axes: Axes, names: Sequence[str], values: Sequence[Sequence[float]], title: str) -> None:
    """Plot a row for each name: a bar to the median and a point for every value."""
    for place, (name, found) in enumerate(zip(names, values, strict=True)):
        if found:
            axes.barh(place, statistics.median(found), color="tab:green" if name.startswith("understudy") else "tab:gray", alpha=0.6)
            axes.plot(found, [place] * len(found), "k.", markersize=4)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_title(title, fontsize=10)


def recoveries(systems: dict[str, Figures], title: str, path: Path) -> None:
    """Plot time to full strength, and completion over the ideal, of all systems at one size. For a migration, which is planned, the
    pause.
    """
    names = [name for name in systems if name != "ideal"]
    labels = [f"{name} (pause)" if name.endswith("-planned") else name for name in names]
    lost = [systems[name].pause if name.endswith("-planned") else systems[name].full for name in names]
    figure = Figure(figsize=(10, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    _points(left, labels, lost, "fault to a step at full strength, s")
    _points(right, names, [systems[name].completion for name in names], "completion time / ideal")
    right.axvline(1.0, color="k", linewidth=0.8)
    right.set_yticks([])
    figure.suptitle(title, fontsize=11)
    figure.savefig(path)


def growth(curves: dict[str, list[tuple[float, float]]], x: str, path: Path) -> None:
    """Plot median time to full strength as a function of the size of the model or the number of ranks; logarithmic."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel="fault to a step at full strength, s")
    axes.legend()
    figure.savefig(path)


def phases(results: Sequence[dict[str, Any]], names: Sequence[str], folder: Path) -> None:
    """Plot each phase of a recovery, and the whole, by bytes moved (for each number of ranks) and by ranks (for each model). `results`:
    of `floor.py`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for what, fixed, x in (("bytes", "ranks", "MB moved"), ("ranks", "model", "ranks")):
        groups = list(dict.fromkeys(one[fixed] for one in results))
        figure = Figure(figsize=(5 * len(groups), 4), layout="constrained")
        for axes, group in zip(figure.subplots(1, len(groups), squeeze=False, sharey=True)[0], groups, strict=True):
            mine = sorted((one for one in results if one[fixed] == group), key=lambda one: one[what])
            at = [one[what] / 1e6 if what == "bytes" else one[what] for one in mine]
            for name in (*names, "whole"):
                axes.plot(at, [max(one["medians"][name], 1e-4) for one in mine], "o-", label=name)
            axes.set(xscale="log", yscale="log", xlabel=x, ylabel="s", title=f"{group} ranks" if fixed == "ranks" else str(group))
        axes.legend()
        figure.savefig(folder / f"phases-{what}.svg")

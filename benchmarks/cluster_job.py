"""Watch a job on a cluster of the tests, for the benchmarks of schedulers: by the log that its ranks write."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import evidence
from peers.log import Reader
from recovery import machine

RANKS, WARM_UP = 4, 20  # steps before anything happens
LIMIT = 900.0  # seconds for anything

Figures = dict[str, list[float]]  # seconds, by what was measured


def arguments(what: str, key: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--times", type=int, default=5, help="of each way")
    parser.add_argument("--every", type=int, default=20, help="steps between the checkpoints of torchrun's job")
    parser.add_argument("--model", default="1M", help="see peers/sizes.py")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, key)
    return parser.parse_args()


def until(condition: Callable[[], Any], what: str, pace: float = 0.05) -> Any:
    """Wait until `condition` returns something true, and return it."""
    start = time.monotonic()
    while not (found := condition()):
        if time.monotonic() - start > LIMIT:
            raise SystemExit(f"{what}: not within {LIMIT:.0f} s")
        time.sleep(pace)
    return found


class Trained:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = Reader(folder / "log")

    def committed(self) -> int:
        self.log.refresh()
        return self.log.committed(RANKS)

    def trains(self) -> None:
        until(lambda: self.committed() >= WARM_UP, f"step {WARM_UP} of {self.folder}")

    def beyond(self) -> int:
        """Return the last step that any rank has committed."""
        self.log.refresh()
        return max((line.step for line in self.log.lines if line.what == "commit"), default=0)

    def again(self, step: int) -> float:
        """Return when every rank had committed a step beyond `step`."""
        until(lambda: self.committed() > step, "training, again")
        times = [
            min(line.time for line in self.log.lines if line.what == "commit" and (line.rank, line.step) == (rank, step + 1))
            for rank in range(RANKS)
        ]
        return max(times)


def tell(turn: int, times: int, way: str, figures: Figures) -> None:
    shown = ", ".join(f"{row} {values[-1]:.2f} s" for row, values in figures.items())
    print(f"{turn + 1}/{times} {way}: {shown}", flush=True)


def show(
    title: str, ratio: str, found: Mapping[str, Figures], theirs: Callable[[str, str], Sequence[float]], args: argparse.Namespace
) -> None:
    """A table, and what `--json` and `--write` ask for. `theirs`: what those of a way and row are to be compared with; none: nothing."""
    table = Table(title, "seconds, median (min to max)", ratio)
    for way, rows in found.items():
        for row, values in rows.items():
            median, others = statistics.median(values), theirs(way, row)
            compared = f"{statistics.median(others) / median:.1f}" if others else ""
            table.add_row(f"{way}: {row}" if row not in way else way, f"{median:.2f} ({min(values):.2f} to {max(values):.2f})", compared)
    Console().print(table)
    if args.write:
        evidence.write_table(args.write, table)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine(), "rows": found}, indent=1) + "\n")

"""`python -m tests.model [NAME ...]`: search the bounds of these names, or all, and print the results as a Markdown table.

What is wrong is printed as the way to it and as a scenario (`tests/scenarios/language.py`), which can be run. `--write`, which takes all
bounds, puts the figures into `docs/evidence/proof.json` and its page.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

from scripts.evidence.record import record
from scripts.evidence.store import load

from tests.core.test_machine import check
from tests.model.bounds import BOUNDS, WALKS, Bounds
from tests.model.explore import Explorer, Found
from tests.model.scenario import scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Search through the bounds, or those of the names.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="put the figures of all bounds into docs/evidence")
    args = parser.parse_args()
    names: list[str] = args.names
    if args.write and names:
        parser.error("--write: with all bounds only")
    searched: list[dict[str, Any]] = []
    walked: list[tuple[str, ...]] = []
    print("| what happens, in every order | states | transitions | longest way | machines | ends | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    wrong = 0
    for name, (bounds, _) in BOUNDS.items():
        if names and name not in names:
            continue
        began = time.process_time()
        explorer = Explorer(bounds, lambda machine: check(machine.state))
        found = explorer.explore()
        if found.wrong:
            _show(name, bounds, found)
            wrong += 1
            continue
        finished, others = found.ends.pop("finished", 0), sum(found.ends.values())
        ends = f"{finished} finished, {others} held or ended with a reason"
        counts = {"states": found.states, "transitions": found.transitions, "longest": found.deepest, "machines": len(explorer.machines)}
        searched.append({"name": name, **counts, "finished": finished, "others": others})
        row = (
            name,
            f"{found.states:,}",
            f"{found.transitions:,}",
            found.deepest,
            f"{len(explorer.machines):,}",
            ends,
            f"{time.process_time() - began:.0f}",
        )
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    wrong += _walks(names, walked)
    if args.write and not wrong:
        _write(searched, walked)
    return 1 if wrong else 0


def _show(name: str, bounds: Bounds, found: Found) -> None:
    """Print an error, the way to it, and a scenario of it."""
    print(f"\n{name}: {found.wrong}", *found.trace, sep="\n  ")
    print(scenario(bounds, found.events, found.wrong))


def _write(searched: list[dict[str, Any]], walked: list[tuple[str, ...]]) -> None:
    """Rows keep the group that they had; new ones are to be put into one by hand."""
    groups = {row["name"]: row["group"] for row in load("proof")["model"]["rows"]}
    rows = [{"name": row["name"], "group": groups.get(row["name"], "new rows"), **row} for row in searched]
    order = list(dict.fromkeys([*groups.values(), "new rows"]))
    rows.sort(key=lambda row: order.index(row["group"]))
    record("proof", "model", rows, result=f"{sum(row['states'] for row in rows):,} states in {len(rows)} rows; no rule is broken")
    ways, finished = sum(count for _, count in WALKS.values()), sum(int(row[-1].split()[0]) for row in walked)
    shown = ("what happens", "transitions", "longest path")
    result = f"{ways:,} paths, {finished:,} finish"
    record("proof", "walks", walked, (*shown, "states of the core", "finished"), result=result, more={"shown": shown})


def _walks(names: list[str], walked: list[tuple[str, ...]]) -> int:
    """Draw ways through bounds that are too large to search. Return how many of them were wrong."""
    wrong = 0
    for name, (bounds, count) in WALKS.items():
        if names and name not in names:
            continue
        began = time.process_time()
        explorer = Explorer(bounds, lambda machine: check(machine.state))
        ways = [explorer.walk(random.Random(number)) for number in range(count)]
        if (found := next((way for way in ways if way.wrong), None)) is not None:
            _show(name, bounds, found)
            wrong += 1
            continue
        steps = [way.transitions for way in ways]
        finished = sum("finished" in way.ends for way in ways)
        ends = f"{finished} finished, {count - finished} held or ended with a reason"
        walked.append((name, f"{sum(steps):,}", f"{max(steps)}", f"{len(explorer.machines):,}", f"{finished} of {count}"))
        row = (f"{name}: {count} drawn ways", "", f"{sum(steps):,}", max(steps), f"{len(explorer.machines):,}", ends)
        print("| " + " | ".join(map(str, (*row, f"{time.process_time() - began:.0f}"))) + " |", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())

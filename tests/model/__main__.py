"""`python -m tests.model [NAME ...]`: search the bounds of these names, or all, and print the results as a Markdown table.

Each error is printed as the way to it and as a scenario (`tests/scenarios/language.py`), which can be run.
"""

from __future__ import annotations

import random
import sys
import time

from tests.core.test_machine import check
from tests.model.bounds import BOUNDS, WALKS, Bounds
from tests.model.explore import Explorer, Found
from tests.model.scenario import scenario


def main(names: list[str]) -> int:
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
        ends = f"{found.ends.pop('finished', 0)} finished, {sum(found.ends.values())} held or ended with a reason"
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
    wrong += _walks(names)
    return 1 if wrong else 0


def _show(name: str, bounds: Bounds, found: Found) -> None:
    """Print an error, the way to it, and a scenario of it."""
    print(f"\n{name}: {found.wrong}", *found.trace, sep="\n  ")
    print(scenario(bounds, found.events, found.wrong))


def _walks(names: list[str]) -> int:
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
        row = (f"{name}: {count} drawn ways", "", f"{sum(steps):,}", max(steps), f"{len(explorer.machines):,}", ends)
        print("| " + " | ".join(map(str, (*row, f"{time.process_time() - began:.0f}"))) + " |", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

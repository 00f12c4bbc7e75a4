"""Measure what a census of the script costs, by number of objects, and what changed names cost in each step. In one process, no job.

    python benchmarks/census.py --looks 51 --json census.json

A script here is a module of small objects with four attributes each. A census goes through all of them, as at a comparison of replicas and
in a recovery. In each step it only reads the names that were seen to change: `ASKED` times a step, at the top of the iteration, at begin,
at the vote, and after it (counted in `examples/train_gpt.py`); at begin it records what a redo restores. In one row all of them change in
the step, in the other none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence
from peers.tables import markdown
from understudy.messages import census as messages
from understudy.messages.base import code_of
from understudy.worker.census import census, roots, walk

ASKED = 6
EACH = 5  # objects that a census counts for each of the script's: itself and its attributes


class Thing:
    """An object of the script."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rate = 0.1
        self.name = "thing"
        self.seen = [number, number + 1, number + 2]


def boundary() -> None:
    """Run nothing: no code runs in a transaction here."""


def median(looks: int, call: Callable[[], Any], before: Callable[[int], Any] = lambda number: None) -> float:
    """Return the median processor time of a call, in seconds: the machine may be busy with other work."""
    took = []
    for number in range(looks):
        before(number)
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return statistics.median(took)


def made(names: dict[str, Any]) -> census.Census:
    """Make the census of a script with these globals and nothing else."""
    module = types.ModuleType("script")
    module.__file__ = __file__
    vars(module).update(names)
    roots.modules = lambda: [("script", vars(module))]
    found = census.Census(lambda: lambda thing: False, {boundary.__code__}, lambda name, stream: None)
    found.set_up()
    return found


def looked(count: int, looks: int) -> tuple[int, float, bool]:
    """Return the number of objects, the seconds of a census, and whether it was complete."""
    things = [Thing(number) for number in range(count // EACH)]
    some = {f"things{first}": things[first : first + 500] for first in range(0, len(things), 500)}
    found = made(some)
    took = median(looks, lambda: found.encoded(None, closely=True))
    return len(things) * EACH, took, not any(code_of(text) == messages.LOOK_ENDED.code for text in found.news())


def asked(count: int, looks: int, change: bool) -> float:
    """Return the seconds of a step with so many names that have changed."""
    names: dict[str, Any] = {f"name{number}": 0 for number in range(count)}
    found = made(names)
    there = roots.modules()[0][1]

    def set_all(number: int) -> None:
        there.update({name: 1000 * (number + 1) + place for place, name in enumerate(names)})

    def step() -> None:
        found.note()
        for _ in range(ASKED - 1):
            found.encoded(None, closely=False)
        found.committed()

    set_all(0)
    for _ in range(census.CLOSELY):
        found.note()
    found.encoded(None, closely=True)
    return median(looks, step, (lambda number: set_all(number + 1)) if change else (lambda number: None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=51, help="of each size (51)")
    parser.add_argument("--json", default="", help="file for all figures")
    evidence.add_option(parser, "census")
    args = parser.parse_args()
    if args.looks < 1:
        parser.error("--looks: at least one")
    sizes = [looked(count, args.looks) for count in (100, 1000, 10_000, walk.MOST - 1000, 2 * walk.MOST)]
    steps = [(count, asked(count, args.looks, True), asked(count, args.looks, False)) for count in (1, 10, 100, census.WATCHED)]
    whole = {True: "yes", False: f"no: it ends at {walk.MOST}"}
    looks = markdown([["objects", "a look, ms", "whole"], *([f"{n}", f"{took * 1e3:.2f}", whole[ended]] for n, took, ended in sizes)])
    head = ["names that have changed", "in each step, ms, if the step changes all", "if it changes none"]
    each_step = markdown([head, *([f"{n}", f"{changed * 1e3:.3f}", f"{same * 1e3:.3f}"] for n, changed, same in steps)])
    print(looks, each_step, sep="\n\n")
    if args.write:
        evidence.write_table(args.write, looks)
        evidence.write_table(f"{args.write}-steps", each_step)
    if args.json:
        Path(args.json).write_text(json.dumps({"looks": sizes, "steps": steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()

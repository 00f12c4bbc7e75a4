"""`python -m tests.matrix.covering`: print the jobs that the gate runs, a covering array.

Mode, phase, fault, the end of a lost communicator, and scheduler have too many combinations to run. Most bugs need two of these
together, so the rows are chosen in such a way that every possible pair of values of any two factors occurs in at least one row:
greedily, the row with most new pairs for its cost, until no pair is missing. `possible` excludes impossible rows. (The library allpairspy
was tried: with such exclusions it left 8 of 200 pairs out, and it knows no costs.)

A row is a cell of the matrix on a scheduler. Which member of a kind of fault strikes changes from row to row.

The rows run in three places: those of this machine in `make test`, those on torch's own way to join a communicator again in
`make newest`, and those of Slurm and Kubernetes, of which `.ci/run` has the first job each, in `make slurm` and `make kubernetes`.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import cache
from itertools import combinations, product

from tests.matrix.cells import IN_STEP, MIGRATION, PARALLEL, PHASES, RECOVERY

LOCAL, SLURM, KUBERNETES = "local", "slurm", "kubernetes"
NEW, REJOINED = "new communicator", "joined again"  # torch 2.13 makes another communicator, 2.14 can join the same one again (`rejoining`)
NODE_LOST = "node lost"  # not of the registry: the power of a cluster's node is turned off

# The faults of each kind, in the order in which they take turns; `INSIDE` of a cluster, where faults are armed inside workers.
KINDS = {
    "worker ends": ("sigkill", "segfault", "device_error", "abort", "exit", "sigterm"),
    "worker stands still": ("hang", "sigstop", "gil_held"),
    "connection": ("socket_reset", "packet_drop", "slow_link"),
    "resource": ("disk_full", "clock_jump", "exception_in_thread", "journal_full"),
    "control plane": ("orchestrator_kill", "agent_kill", "orchestrator_pause", "agent_pause"),
    "node": (NODE_LOST,),
}
INSIDE: tuple[str, ...] = (
    "sigkill",
    "segfault",
    "abort",
    "exit",
    "sigterm",
    "hang",
    "sigstop",
    "gil_held",
    "socket_reset",
    "disk_full",
    "clock_jump",
)
INSIDE += ("exception_in_thread", NODE_LOST)
PAUSE = "pause"  # a rank that stops in a recovery: the recovery's own limits end a hang there, after half a minute

FACTORS: Mapping[str, Sequence[str]] = {
    "phase": PHASES,
    "kind": tuple(KINDS),
    "scheduler": (LOCAL, SLURM, KUBERNETES),
    "mode": tuple(PARALLEL),
    "groups": (NEW, REJOINED),
}
COST = {SLURM: 3.0, KUBERNETES: 3.0}  # of a row, where one on this machine costs 1


@dataclass(frozen=True)
class Row:
    phase: str
    kind: str
    scheduler: str
    mode: str
    groups: str
    fault: str = ""

    @property
    def name(self) -> str:
        return ", ".join(astuple(self))


Pair = tuple[tuple[str, str], tuple[str, str]]


def possible(values: Mapping[str, str]) -> bool:
    """Whether a row may have these values; factors that are not decided yet are missing."""
    kind, scheduler = values.get("kind"), values.get("scheduler")
    if kind == "node" and scheduler == LOCAL:
        return False  # one machine is one node: the job ends with it
    if kind == "control plane" and scheduler in (SLURM, KUBERNETES):
        return False  # killed there by tests/slurm and tests/kubernetes, in ways of their own
    if kind == "node" and values.get("phase") in RECOVERY:
        return False  # the node of a newcomer is the one with all spares
    if values.get("groups") == REJOINED and scheduler in (SLURM, KUBERNETES):
        return False  # the nodes of the test clusters have the base torch
    return not (values.get("groups") == REJOINED and kind == "node")


@cache
def rows() -> tuple[Row, ...]:
    """Return the covering array, by scheduler, groups and mode."""
    complete = [Row(*values) for values in product(*FACTORS.values())]
    candidates = [row for row in complete if possible({name: getattr(row, name) for name in FACTORS})]
    missing, found, used = wanted(), list[Row](), Counter[str]()
    while missing:  # the row that adds most for its cost; of equals the one with the mode that occurs least so far
        found.append(max(candidates, key=lambda row: (len(pairs(row) & missing) / COST.get(row.scheduler, 1.0), -used[row.mode])))
        missing -= pairs(found[-1])
        used[found[-1].mode] += 1
    found = _with_faults(found)
    order = {value: number for values in FACTORS.values() for number, value in enumerate(values)}
    return tuple(sorted(found, key=lambda row: (order[row.scheduler], order[row.groups], order[row.mode], row.kind == "node")))


def of(scheduler: str, groups: str = NEW) -> list[Row]:
    return [row for row in rows() if (row.scheduler, row.groups) == (scheduler, groups)]


def pairs(row: Row) -> set[Pair]:
    """Return the pairs of values that a row shows."""
    values = {name: getattr(row, name) for name in FACTORS}
    return {((one, values[one]), (other, values[other])) for one, other in combinations(FACTORS, 2)}


def wanted() -> set[Pair]:
    """Return all pairs that a complete row can show."""
    complete = (Row(*values) for values in product(*FACTORS.values()))
    return set().union(*(pairs(row) for row in complete if possible({name: getattr(row, name) for name in FACTORS})))


def _with_faults(found: Iterable[Row]) -> list[Row]:
    turns = Counter[tuple[str, bool]]()
    named = []
    for row in found:
        local = row.scheduler == LOCAL
        names = [name for name in KINDS[row.kind] if local or name in INSIDE]
        if row.kind == "worker stands still" and row.phase not in IN_STEP and row.phase != MIGRATION and local:
            named.append(replace(row, fault=PAUSE))
            continue
        named.append(replace(row, fault=names[turns[row.kind, local] % len(names)]))
        turns[row.kind, local] += 1
    return named


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.covering", description="The jobs of the gate, a covering array.")
    parser.add_argument("--json", action="store_true", help="for programs")
    if parser.parse_args().json:
        print(json.dumps([asdict(row) for row in rows()], indent=1))
        return
    names = [field.name for field in fields(Row)]
    table = [names, *(list(astuple(row)) for row in rows())]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip())
    for what, some in (("all", rows()), ("make test", of(LOCAL)), ("make newest", of(LOCAL, REJOINED))):
        shown = set().union(*(pairs(row) for row in some))
        print(f"{what}: {len(some)} rows, {len(shown & wanted())} of {len(wanted())} possible pairs")


if __name__ == "__main__":
    main()

"""Make the schedule of a plan from a seed and the job's number of ranks and nodes.

The same plan, seed and number of ranks give the same schedule. Each entry draws from its own random stream, so that changing one leaves
the others as they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from understudy.chaos.base import Fault, Hits, Outcome, Value
from understudy.chaos.plan import RANDOM, BadPlan, Entry, Plan, parameter_names
from understudy.chaos.registry import Registry
from understudy.messages import faults


@dataclass(frozen=True)
class Injection:
    """One fault of a schedule. One of `rank`, `node` and `spare` is given; none for the orchestrator."""

    number: int  # from 1
    entry: int  # of the plan, from 1
    fault: str
    values: dict[str, Value]
    expected: Outcome
    rank: int | None = None
    node: str | None = None
    spare: bool = False
    at_step: int | None = None
    after: float | None = None
    point: str | None = None
    at_rank: int | None = None  # waits at the point while the fault is injected from outside; None: no rank does
    overlap: bool = False

    @property
    def target(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank}"
        return self.node or ("a spare" if self.spare else "the orchestrator")

    @property
    def when(self) -> str:
        return f"step {self.at_step}" if self.at_step is not None else f"{self.after or 0.0:.1f} s"


def schedule(plan: Plan, registry: Registry, ranks: int, nodes: Sequence[str], seed: int | None = None) -> list[Injection]:
    """Return the schedule of a job with so many `ranks` on `nodes`: by time and by step, each in order. Raises `BadPlan`."""
    chosen = plan.seed if seed is None else seed
    found: list[Injection] = []
    for number, entry in enumerate(plan.fault, 1):
        _check(number, entry, ranks, nodes)
        found += _drawn(number, entry, registry, ranks, nodes, random.Random(f"{chosen} {number}"))
    found.sort(key=lambda one: (one.at_step is None, one.at_step or 0, one.after or 0.0))
    return [replace(one, number=number) for number, one in enumerate(found, 1)]


def _check(number: int, entry: Entry, ranks: int, nodes: Sequence[str]) -> None:
    """Check that the job has the targets that the entry names. Raises `BadPlan`."""
    if isinstance(entry.rank, int) and not 0 <= entry.rank < ranks:
        raise BadPlan(faults.NO_SUCH_RANK(number=number, rank=entry.rank, last=ranks - 1))
    if entry.at_rank is not None and entry.at_rank >= ranks:
        raise BadPlan(faults.NO_SUCH_AT_RANK(number=number, rank=entry.at_rank, last=ranks - 1))
    if entry.node not in (None, RANDOM, *nodes):
        raise BadPlan(faults.NO_SUCH_NODE(number=number, node=entry.node, known=", ".join(nodes)))


def _drawn(number: int, entry: Entry, registry: Registry, ranks: int, nodes: Sequence[str], chance: random.Random) -> Iterator[Injection]:
    """Yield each repetition of an entry, not numbered yet."""
    for turn in range(entry.count):
        # Everything is drawn each time, needed or not, so that changing one word in a plan changes nothing else.
        name = chance.choices(list(entry.weights), list(entry.weights.values()))[0]
        in_ranks, in_nodes, in_points, late = (chance.random() for _ in range(4))
        fault = registry.find(name)
        rank = _rank(entry, fault, int(in_ranks * ranks))
        at_step, after = _when(entry, turn, late)
        yield Injection(
            number=0,
            entry=number,
            fault=name,
            values=fault.values({key: value for key, value in entry.parameters.items() if key in parameter_names(fault)}),
            expected=_expected(entry, fault, alone=len(nodes) == 1),
            rank=rank,
            node=_node(entry, fault, nodes, in_nodes),
            spare=entry.spare,
            at_step=at_step,
            after=after,
            point=entry.points[int(in_points * len(entry.points))] if entry.points else None,
            at_rank=(rank if entry.at_rank is None else entry.at_rank) if entry.points and fault.inside is None else None,
            overlap=entry.overlap,
        )


def _rank(entry: Entry, fault: Fault, drawn: int) -> int | None:
    if fault.hits is not Hits.WORKER or entry.spare:
        return None
    return entry.rank if isinstance(entry.rank, int) else drawn


def _node(entry: Entry, fault: Fault, nodes: Sequence[str], drawn: float) -> str | None:
    if fault.hits is not Hits.NODE:
        return None
    return nodes[int(drawn * len(nodes))] if entry.node in (None, RANDOM) else entry.node


def _expected(entry: Entry, fault: Fault, *, alone: bool) -> Outcome:
    """Return the expected outcome. `alone`: the job has one node."""
    outcome = fault.alone if fault.alone is not None and alone else fault.expected
    if entry.spare and outcome is Outcome.REPLACED:
        outcome = Outcome.UNDISTURBED
    return entry.expect or outcome


def _when(entry: Entry, turn: int, late: float) -> tuple[int | None, float | None]:
    """Return step and seconds of the entry's `turn`, one of them None."""
    later = turn * (entry.every or 0)
    if entry.at_step is not None:
        return entry.at_step + int(later) + int(late * (entry.jitter + 1)), None
    return None, (entry.after or 0.0) + later + late * entry.jitter

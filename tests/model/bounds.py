"""How large the jobs are that are searched through, and what may happen to them."""

from __future__ import annotations

from dataclasses import dataclass, field

FAULTS = ("kill", "hung", "cut", "crash", "migrate", "early", "repeat")


@dataclass(frozen=True)
class Bounds:
    """How large the job is, and which faults there are: how many of a kind, and of all together."""

    ranks: int = 2
    nodes: int = 1
    spares: int = 1
    transactions: int = 2
    faults: dict[str, int] = field(default_factory=dict)
    together: int = 1
    replenish: bool = False
    keepers: int = 2


# What is searched through, and how many states that has.
BOUNDS: dict[str, tuple[Bounds, int]] = {
    "no fault": (Bounds(transactions=3), 272),
    "a worker or spare dies": (Bounds(faults={"kill": 1}), 7_070),
    "a worker or spare dies, 3 ranks": (Bounds(ranks=3, transactions=1, faults={"kill": 1}), 58_497),
    "two die, 1 spare": (Bounds(transactions=1, faults={"kill": 2}, together=2), 51_287),
    "two die, 2 spares": (Bounds(transactions=1, spares=2, faults={"kill": 2}, together=2), 66_765),
    "a worker is taken for hung and goes on": (Bounds(faults={"hung": 1}), 28_058),
    "one hangs and one dies": (Bounds(transactions=1, faults={"kill": 1, "hung": 1}, together=2), 611_338),
    "the orchestrator dies": (Bounds(faults={"crash": 1}), 6_116),
    "a worker and the orchestrator die": (Bounds(transactions=1, faults={"kill": 1, "crash": 1}, together=2), 118_734),
    "a rank moves": (Bounds(transactions=3, faults={"migrate": 1}), 2_408),
    "a rank moves and a worker dies": (Bounds(spares=2, faults={"migrate": 1, "kill": 1}, together=2), 53_102),
    "a rank moves and one is taken for hung": (Bounds(faults={"migrate": 1, "hung": 1}, together=2), 193_076),
    "a rank moves and a timer runs out early": (Bounds(faults={"migrate": 1, "early": 1}, together=2), 17_380),
    "a worker dies and words come again": (Bounds(transactions=1, faults={"kill": 1, "repeat": 1}, together=2), 10_837),
    "a node is cut off": (Bounds(transactions=1, nodes=2, spares=2, faults={"cut": 1}), 70_788),
}

"""How large the jobs are that are searched through, and what may happen to them (`faults.py` has the names of the faults)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """How large the job is, and which faults there are: how many of a kind, and of all together."""

    ranks: int = 2
    nodes: int = 1
    spare_nodes: int = 0  # `JobSpec.spare_nodes`: further ones, with as many spares each as another has ranks
    spares: int = 1
    transactions: int = 2
    faults: dict[str, int] = field(default_factory=dict)
    together: int = 1
    replenish: bool = False
    keepers: int = 2
    prepared: int = 0  # so many of the spares
    restarts: int = 3  # `JobSpec.max_restarts`
    losses: int = 99  # `JobSpec.max_losses_per_transaction`
    admission: bool = False  # `JobSpec.admission`
    home_after: float = -1.0  # `JobSpec.home_after`
    floating: int = 0  # `JobSpec.floating`; the scheduler has as many nodes to give
    begin: str = "training"  # or "setup": the script's set-up is still to be done; or "forming": no worker is warm yet

    @property
    def own_nodes(self) -> int:
        """Those that are not claimed."""
        return self.nodes + self.spare_nodes


def _one(transactions: int = 1, **rest: Any) -> Bounds:
    """One transaction, and as many faults together as there are."""
    faults = rest.pop("faults")
    return Bounds(transactions=transactions, faults=faults, together=sum(faults.values()), **rest)


# The bounds of the search, and how many states each has.
BOUNDS: dict[str, tuple[Bounds, int]] = {
    "no fault": (Bounds(transactions=3), 263),
    "a worker or spare dies": (_one(2, faults={"kill": 1}), 2_467),
    "a worker or spare dies, 3 ranks": (_one(ranks=3, faults={"kill": 1}), 12_357),
    "two die, 1 spare": (_one(faults={"kill": 2}), 18_836),
    "two die, 2 spares": (_one(spares=2, faults={"kill": 2}), 14_825),
    "two die, spares are replaced": (_one(faults={"kill": 2}, replenish=True), 18_008),
    "three die, 2 spares": (_one(spares=2, faults={"kill": 3}), 146_109),
    "one dies, and a spare is refused": (_one(faults={"kill": 1, "refuse": 1}, replenish=True), 2_206),
    "one dies, and a newcomer's state differs": (_one(spares=2, faults={"kill": 1, "differs": 1}), 2_885),
    "one dies in the set-up": (_one(faults={"kill": 1}, begin="setup"), 1_490),
    "two die in the set-up": (_one(faults={"kill": 2}, begin="setup"), 32_287),
    "one dies and one is refused before there are ranks": (_one(faults={"kill": 1, "refuse": 1}, begin="forming", replenish=True), 9_629),
    "a connection breaks": (_one(2, faults={"break": 1}), 3_383),
    "two connections break": (_one(faults={"break": 2}), 11_230),
    "a connection breaks in the set-up": (_one(faults={"break": 1}, begin="setup"), 1_850),
    "a connection breaks and one dies": (_one(faults={"break": 1, "kill": 1}), 38_319),
    "one hangs and goes on": (_one(2, faults={"hung": 1}), 13_368),
    "one hangs and one dies": (_one(faults={"kill": 1, "hung": 1}), 105_556),
    "one dies and a timer runs out early": (_one(faults={"kill": 1, "early": 1}), 27_808),
    "the orchestrator dies": (_one(2, faults={"crash": 1}), 1_014),
    "the orchestrator dies twice": (_one(faults={"crash": 2}), 5_057),
    "a worker and the orchestrator die": (_one(faults={"kill": 1, "crash": 1}), 69_201),
    "the orchestrator dies before there are ranks": (_one(0, spares=0, faults={"crash": 1}, begin="forming"), 311),
    "a connection breaks and the orchestrator dies": (_one(faults={"break": 1, "crash": 1}), 60_382),
    "one hangs and the orchestrator dies": (_one(faults={"hung": 1, "crash": 1}), 343_794),
    "a rank dies twice at one transaction, which is enough": (_one(spares=2, losses=2, faults={"kill": 2}), 13_475),
    "all start anew once, which is enough": (_one(0, spares=3, restarts=1, begin="setup", faults={"kill": 2}), 7_461),
    "another orchestrator takes over": (_one(2, faults={"takeover": 1}), 1_014),
    "a worker dies and another orchestrator takes over": (_one(faults={"kill": 1, "takeover": 1}), 70_413),
    "a connection breaks and another orchestrator takes over": (_one(faults={"break": 1, "takeover": 1}), 62_043),
    "a rank moves and another orchestrator takes over": (_one(faults={"migrate": 1, "takeover": 1}), 32_712),
    "a script raises": (_one(2, faults={"fails": 1}), 268),
    "a script raises in the set-up": (_one(faults={"fails": 1}, begin="setup"), 147),
    "a script raises, and a worker dies": (_one(faults={"fails": 1, "kill": 1}), 3_468),
    "a script raises, and a rank moves": (_one(faults={"fails": 1, "migrate": 1}), 669),
    "a script raises, and the orchestrator dies": (_one(faults={"fails": 1, "crash": 1}), 4_916),
    "the device of a worker fails": (_one(2, faults={"device": 1}), 2_754),
    "the devices of two fail, 3 spares": (_one(spares=3, faults={"device": 2}), 13_511),
    "the device of a worker fails in the set-up": (_one(faults={"device": 1}, begin="setup"), 1_855),
    "the device of a worker fails, and another dies": (_one(spares=2, faults={"device": 1, "kill": 1}), 30_610),
    "the device of a worker fails, and a rank moves": (_one(2, spares=2, faults={"device": 1, "migrate": 1}), 26_153),
    "the device of a worker fails, and a spare is drilled": (_one(faults={"device": 1, "drill": 1}, replenish=True), 12_545),
    "the device of a worker fails, a spare is prepared": (_one(prepared=1, faults={"device": 1}, replenish=True), 2_029),
    "the device of a worker fails, and the orchestrator dies": (_one(faults={"device": 1, "crash": 1}), 75_676),
    "a worker dies, and its state is nowhere": (_one(faults={"kill": 1, "lacks": 1}), 2_053),
    "two workers die, and state is nowhere": (_one(faults={"kill": 2, "lacks": 1}), 21_959),
    "somebody asks to stop": (_one(2, faults={"stop": 1}), 275),
    "a worker dies, and somebody asks to stop": (_one(faults={"kill": 1, "stop": 1}), 3_380),
    "a rank moves": (_one(3, faults={"migrate": 1}), 2_754),
    "two ranks move": (_one(3, spares=2, faults={"migrate": 2}), 4_528),
    "a rank moves and a worker dies": (_one(3, spares=2, faults={"migrate": 1, "kill": 1}), 63_038),
    "a rank moves and one is taken for hung": (_one(3, faults={"migrate": 1, "hung": 1}), 187_321),
    "a rank moves and a timer runs out early": (_one(2, faults={"migrate": 1, "early": 1}), 7_115),
    "a rank moves and a connection breaks": (_one(2, faults={"migrate": 1, "break": 1}), 34_847),
    "a rank moves and the orchestrator dies": (_one(faults={"migrate": 1, "crash": 1}), 31_644),
    "a worker dies, a spare is prepared": (_one(2, prepared=1, faults={"kill": 1}), 6_276),
    "two die, one of two spares is prepared": (_one(spares=2, prepared=1, faults={"kill": 2}), 27_555),
    "two die, spares are prepared and replaced": (_one(prepared=1, faults={"kill": 2}, replenish=True), 28_832),
    "a rank moves and a worker dies, spares are prepared": (_one(spares=2, prepared=2, faults={"migrate": 1, "kill": 1}), 35_020),
    "a worker and the orchestrator die, spares are prepared": (_one(spares=2, prepared=2, faults={"kill": 1, "crash": 1}), 474_235),
    "a worker dies and a command comes twice, spares are prepared": (_one(spares=2, prepared=2, faults={"kill": 1, "echo": 1}), 21_912),
    "a node of two is cut off and comes back, spares are prepared": (_one(nodes=2, spares=2, prepared=2, faults={"cut": 1}), 211_959),
    "a worker dies and a timer runs out early, a spare is prepared": (_one(prepared=1, faults={"kill": 1, "early": 1}), 44_091),
    "a spare is drilled": (_one(2, faults={"drill": 1}, replenish=True), 4_259),
    "two spares are drilled": (_one(2, faults={"drill": 2}, replenish=True), 33_611),
    "a spare is drilled, and one dies": (_one(2, faults={"drill": 1, "kill": 1}, replenish=True), 66_363),
    "a spare is drilled, one dies, and one is refused": (_one(faults={"drill": 1, "kill": 1, "refuse": 1}, replenish=True), 36_457),
    "a spare is drilled, and one is taken for hung": (_one(faults={"drill": 1, "hung": 1}, replenish=True), 16_747),
    "a spare is drilled, and its set-up raises": (_one(faults={"drill": 1, "raises": 1}, replenish=True), 2_013),
    "a spare is drilled, and a timer runs out early": (_one(faults={"drill": 1, "early": 1}, replenish=True), 2_039),
    "a spare is drilled, and a connection breaks": (_one(faults={"drill": 1, "break": 1}, replenish=True), 3_674),
    "a spare is drilled, and a rank is odd": (_one(faults={"drill": 1, "odd": 1}, replenish=True), 4_849),
    "a spare is drilled, and a command comes twice": (_one(faults={"drill": 1, "echo": 1}, replenish=True), 5_359),
    "a spare is drilled, and a rank moves": (_one(2, faults={"drill": 1, "migrate": 1}, replenish=True), 29_452),
    "one aborts": (_one(faults={"dumps": 1}), 920),
    "two abort": (_one(spares=2, faults={"dumps": 2}), 8_855),
    "a worker dies and its peer notices": (_one(2, faults={"snap": 1}), 2_896),
    "such a one, and another dies": (_one(spares=2, faults={"snap": 1, "kill": 1}), 34_067),
    "the set-up of a prepared spare raises": (_one(2, prepared=1, faults={"raises": 1}, replenish=True), 924),
    "such a one, and a worker dies": (_one(prepared=1, faults={"raises": 1, "kill": 1}, replenish=True), 6_967),
    "a node is tainted, and a worker dies": (_one(nodes=2, spares=2, faults={"taint": 1, "kill": 1}, replenish=True), 7_274),
    "a node is to be left": (_one(nodes=2, spares=2, faults={"leave": 1}, replenish=True), 429),
    "a node is to be left, and a worker dies": (_one(nodes=2, spares=2, faults={"leave": 1, "kill": 1}, replenish=True), 14_298),
    "a device is to be left": (_one(spares=2, faults={"leave device": 1}), 948),
    "a device is to be left, and a worker dies": (_one(spares=2, faults={"leave device": 1, "kill": 1}), 22_640),
    "a device is to be left, and a device fails": (_one(spares=3, faults={"leave device": 1, "device": 1}), 27_072),
    "two ranks are to leave one device": (_one(2, ranks=3, spares=2, faults={"leave shared device": 1}), 16_527),
    "two ranks are to leave one device, and a newcomer's state differs": (
        _one(2, ranks=3, spares=2, faults={"leave shared device": 1, "differs": 1}),
        66_768,
    ),
    "two ranks are to leave one device, and a worker dies in the set-up": (
        _one(ranks=3, spares=2, faults={"leave shared device": 1, "kill": 1}),
        230_994,
    ),
    "two ranks are to leave one device, and a connection breaks": (
        _one(ranks=3, spares=2, faults={"leave shared device": 1, "break": 1}),
        115_419,
    ),
    "four ranks are to leave one device": (_one(ranks=5, spares=4, faults={"leave shared device": 1}), 279_728),
    "two nodes are to be left": (_one(nodes=2, spares=2, faults={"leave": 2}, replenish=True), 740),
    "a node is to be left, and a connection breaks": (_one(nodes=2, spares=2, faults={"leave": 1, "break": 1}, replenish=True), 4_938),
    "a node is to be left, and an agent ends": (_one(nodes=2, spares=2, faults={"leave": 1, "agent": 1}, replenish=True), 20_234),
    "two nodes are to be left, one spare, and a worker dies": (
        _one(nodes=2, faults={"leave": 2, "kill": 1}, replenish=True),
        12_003,
    ),
    "two die, and a spare node has one place": (_one(nodes=2, spares=0, spare_nodes=1, faults={"kill": 2}, replenish=True), 18_583),
    "two nodes are to be left for one place": (_one(nodes=2, spares=0, spare_nodes=1, faults={"leave": 2}, replenish=True), 1_169),
    "a node is to be left for one place, and a worker dies": (
        _one(nodes=2, spares=0, spare_nodes=1, faults={"leave": 1, "kill": 1}, replenish=True),
        11_991,
    ),
    "the spare at the only place is drilled, and a worker dies": (
        _one(nodes=2, spares=0, spare_nodes=1, faults={"drill": 1, "kill": 1}, replenish=True),
        15_966,
    ),
    "a rank leaves the only place, and goes home": (
        _one(2, nodes=2, spares=0, spare_nodes=1, home_after=1.0, faults={"leave": 1, "wears": 1}, replenish=True),
        5_920,
    ),
    "a node is drained": (_one(nodes=2, spares=2, faults={"drain": 1}, replenish=True), 6_230),
    "a node is drained, and a worker dies": (_one(nodes=2, spares=2, faults={"drain": 1, "kill": 1}, replenish=True), 276_021),
    "two nodes are drained": (_one(nodes=2, spares=2, faults={"drain": 2}, replenish=True), 103_376),
    "a node is drained, and another is to be left": (_one(nodes=2, spares=2, faults={"drain": 1, "leave": 1}, replenish=True), 24_154),
    "a node is drained, and a spare is drilled": (_one(nodes=2, spares=2, faults={"drain": 1, "drill": 1}, replenish=True), 83_535),
    "a node is drained, spares are prepared": (_one(nodes=2, spares=2, prepared=2, faults={"drain": 1}, replenish=True), 279_939),
    "a node is drained in the set-up": (_one(nodes=2, spares=2, faults={"drain": 1, "kill": 1}, begin="setup", replenish=True), 531_275),
    "a node is drained, and an agent ends": (_one(nodes=2, spares=2, faults={"drain": 1, "agent": 1}, replenish=True), 273_343),
    "a node is left, checked, and its rank goes home": (
        _one(2, nodes=2, spares=2, admission=True, home_after=1.0, faults={"leave": 1, "wears": 1, "checked": 2}, replenish=True),
        37_165,
    ),
    "a node is left, its rank goes home, and a worker dies": (
        _one(2, nodes=2, spares=2, home_after=1.0, faults={"leave": 1, "wears": 1, "kill": 1}, replenish=True),
        429_033,
    ),
    "a node comes and goes, and its rank goes home once": (
        _one(2, nodes=2, spares=2, home_after=1.0, faults={"leave": 2, "wears": 2}, replenish=True),
        83_106,
    ),
    "a node is tainted and trusted again, and another": (_one(nodes=2, spares=2, faults={"taint": 2}), 285),
    "a worker dies, and a node is claimed": (_one(2, spares=0, floating=1, faults={"kill": 1, "ended": 1}), 97_742),
    "a node is to be left, and one is claimed": (
        _one(2, nodes=2, spares=0, floating=1, faults={"leave": 1, "ended": 1, "late": 1}),
        40_650,
    ),
    "a node is left for a claimed one, which is taken away": (
        _one(3, nodes=2, spares=0, floating=1, faults={"leave": 1, "ended": 1}),
        51_124,
    ),
    "a node is to be left, a worker dies, and a node is claimed": (
        _one(2, nodes=2, spares=0, floating=1, faults={"leave": 1, "kill": 1}),
        77_074,
    ),
    "a node is left for a claimed one, and trusted again": (_one(4, nodes=2, floating=1, faults={"leave": 1, "wears": 1}), 14_874),
    "a node is claimed, and the orchestrator dies": (_one(2, nodes=2, spares=0, floating=1, faults={"leave": 1, "crash": 1}), 508_313),
    "4 ranks on 2 nodes, and one of these ends": (_one(ranks=4, nodes=2, spares=4, faults={"agent": 1}), 754_038),
    "a rank is odd among its replicas": (_one(faults={"odd": 1}), 1_107),
    "replicas differ, and nobody can tell who is right": (_one(faults={"torn": 1}), 4_978),
    "replicas differ, and one dies": (_one(faults={"torn": 1, "kill": 1}), 99_405),
    "a connection breaks, and a redo differs": (_one(faults={"break": 1, "redo": 1}), 1_963),
    "a worker dies, and a redo differs": (_one(faults={"kill": 1, "redo": 1}), 3_713),
    "a worker dies, a redo differs, and another dies": (_one(spares=2, faults={"kill": 2, "redo": 1}), 44_303),
    "a rank is odd, and one moves": (_one(spares=2, faults={"odd": 1, "migrate": 1}), 2_286),
    "a worker dies and words come again": (_one(faults={"kill": 1, "repeat": 1}), 10_163),
    "a worker dies and words overtake others": (_one(2, faults={"kill": 1, "overtake": 2}), 15_425),
    "a worker dies and a command comes twice": (_one(faults={"kill": 1, "echo": 1}), 6_505),
    "a rank moves and a command comes twice": (_one(2, faults={"migrate": 1, "echo": 1}), 7_418),
    "a node of two is cut off and comes back": (_one(nodes=2, spares=2, faults={"cut": 1}), 44_981),
    "one of two nodes ends and is started anew": (_one(nodes=2, spares=2, faults={"agent": 1}, replenish=True), 5_022),
    "such a node ends and a worker dies": (_one(nodes=2, spares=2, faults={"agent": 1, "kill": 1}), 111_970),
}


def _four_leave(spares: int, faults: dict[str, int]) -> tuple[Bounds, int]:
    faults = {"leave shared device": 1, **faults}
    return Bounds(ranks=5, spares=spares, transactions=8, faults=faults, together=sum(faults.values())), 200


# Too large to be searched through. The number: how many ways `make model` draws.
WALKS: dict[str, tuple[Bounds, int]] = {
    "four ranks leave one device": _four_leave(4, {}),
    "four ranks leave one device, and a worker dies": _four_leave(5, {"kill": 1}),
    "four ranks leave one device, and two workers die": _four_leave(6, {"kill": 2}),
    "four ranks leave one device, and a newcomer's state differs": _four_leave(5, {"differs": 1}),
    "four ranks leave one device, and a connection breaks": _four_leave(4, {"break": 1}),
    "four ranks leave one device, and the orchestrator dies": _four_leave(4, {"crash": 1}),
}

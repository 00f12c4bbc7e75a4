"""Steps that are left out of the search (`reduction.py`, `forget.py`) must not matter: small bounds, with and without."""

from __future__ import annotations

import pytest

from tests.model.bounds import Bounds
from tests.model.bugs import BUGS
from tests.model.explore import Explorer
from tests.model.planting import Bug, planted
from tests.model.test_model import holds
from tests.rows import whole

SMALL = {
    "a worker dies": Bounds(transactions=1, faults={"kill": 1}),
    "a worker dies in the set-up": Bounds(transactions=0, faults={"kill": 1}, begin="setup"),
    "a worker dies before there are ranks": Bounds(transactions=0, spares=0, faults={"kill": 1}, begin="forming"),
    "a worker dies, and another can be started": Bounds(transactions=1, spares=0, faults={"kill": 1}, replenish=True),
    "one hangs": Bounds(transactions=1, faults={"hung": 1}),
    "a rank moves": Bounds(transactions=2, faults={"migrate": 1}),
    "a rank moves and a timer runs out early": Bounds(transactions=1, faults={"migrate": 1, "early": 1}, together=2),
    "a spare is drilled": Bounds(transactions=1, faults={"drill": 1}, replenish=True),
    "a connection breaks": Bounds(transactions=1, faults={"break": 1}),
    "a newcomer's state differs": Bounds(transactions=1, spares=2, faults={"kill": 1, "differs": 1}, together=2),
    "an agent ends": Bounds(transactions=1, nodes=2, spares=0, faults={"agent": 1}),
}


@pytest.mark.parametrize("name", [*list(SMALL)[::2], *whole(*list(SMALL)[1::2])])
def test_every_order_reaches_the_same_ends(name: str) -> None:
    everything, reduced = (Explorer(SMALL[name], holds, reduced=reduced) for reduced in (False, True))
    full, part = everything.explore(), reduced.explore()
    assert not full.wrong and not part.wrong
    assert full.ends.keys() == part.ends.keys()
    assert part.states <= full.states


LOOKED_FOR = [bug for bug in BUGS if "written" not in bug.what][::3]  # every third: all take more than a minute
FEW = [bug for bug in LOOKED_FOR if not bug.far][::3]


@pytest.mark.parametrize("bug", [*FEW, *whole(*(bug for bug in LOOKED_FOR if bug not in FEW))], ids=lambda bug: bug.what)
def test_every_order_finds_the_same_bugs(bug: Bug) -> None:
    with planted(bug):
        assert Explorer(bug.bounds, holds, reduced=False).explore(100_000).wrong


def test_every_way_ends() -> None:
    """No state is reached twice on one way, so none goes on forever; and where nothing more happens, the search looks for the reason."""
    found = Explorer(Bounds(transactions=1, faults={"kill": 1, "repeat": 1}, together=2, replenish=True), holds).explore(graph=True)
    before = dict.fromkeys(found.leads_to, 0)
    for following in found.leads_to.values():
        for name in following:
            before[name] = before.get(name, 0) + 1
    first = [name for name, count in before.items() if count == 0]
    seen = 0
    while first:
        seen += 1
        for name in found.leads_to.get(first.pop(), []):
            before[name] -= 1
            if before[name] == 0:
                first.append(name)
    assert seen == found.states


def test_states_count_once_whatever_the_names_of_their_workers() -> None:
    explorer = Explorer(Bounds(spares=2, faults={"kill": 1}))
    first = explorer.start()
    ways = []
    for spare in ("w2", "w3"):
        state = first
        for step in (f"{spare} is killed", f"WorkerLost of {spare} arrives"):
            state = explorer.tidied(dict(explorer.after(state))[step]())
        ways.append(state)
    assert ways[0].interned is not ways[1].interned
    assert explorer.key(ways[0]) == explorer.key(ways[1]) != explorer.key(first)

"""Jobs that have too many states for a search: some drawn ways keep the rules, and find a bug. `make model` draws more."""

from __future__ import annotations

import random

import pytest

from tests.core.test_machine import check
from tests.model.bounds import WALKS
from tests.model.bugs import BUGS, TOGETHER
from tests.model.explore import Explorer
from tests.model.planting import Bug, planted
from tests.model.state import State
from tests.rows import whole
from understudy.core.state import Stage

DRAWN = 25


@pytest.mark.parametrize("name", [*list(WALKS)[:3], *whole(*list(WALKS)[3:])])
def test_drawn_ways_keep_the_rules(name: str) -> None:
    bounds, _ = WALKS[name]
    explorer = Explorer(bounds, lambda machine: check(machine.state))
    together = 0

    def look(state: State) -> None:
        nonlocal together
        migration = state.machine.state.migration
        if migration is not None and migration.stage is Stage.MOVING:
            together = max(together, len(migration.moves))

    for number in range(DRAWN):
        found = explorer.walk(random.Random(number), look)
        assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert together == 4, "no way came to where four ranks move at one boundary"


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.bounds is TOGETHER], ids=lambda bug: bug.what)
def test_drawn_ways_find_a_bug(bug: Bug) -> None:
    bounds, _ = WALKS["four ranks leave one device, and a newcomer's state differs"]
    with planted(bug):
        explorer = Explorer(bounds, lambda machine: check(machine.state))
        assert any(explorer.walk(random.Random(number)).wrong for number in range(10 * DRAWN))

"""The protocol that ships, in every interleaving within bounds; and planted bugs, each of which must be found.

`python -m tests.model` searches further than there is time for here (`make model`).
"""

from __future__ import annotations

import random

import pytest

from tests.core.test_machine import check
from tests.model.bounds import BOUNDS, Bounds
from tests.model.bugs import BUGS
from tests.model.explore import Explorer
from tests.model.machines import machine_key
from tests.model.planting import Bug, planted
from tests.model.validate import Validator
from tests.rows import whole
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.orchestrator.settings import Settings

QUICK = [name for name, (_, states) in BOUNDS.items() if states < 2_000]
FAR, NEAR = ([bug for bug in BUGS if bug.far is far] for far in (True, False))


def holds(machine: Machine) -> None:
    check(machine.state)


@pytest.mark.parametrize("name", QUICK)
def test_every_interleaving_keeps_the_rules(name: str) -> None:
    bounds, states = BOUNDS[name]
    found = Explorer(bounds, holds).explore()
    assert not found.wrong, "\n".join([found.wrong, *found.trace])
    assert found.complete
    assert found.states > states // 2, "the search has become smaller: is something not explored any more?"
    assert found.ends.get("finished", 0) > 0


@pytest.mark.parametrize("bug", [*NEAR, *whole(*FAR)], ids=lambda bug: bug.what)
def test_it_bites(bug: Bug) -> None:
    with planted(bug):
        found = Explorer(bug.bounds, holds).explore(200_000)
    assert found.wrong, f"not found in {found.states} states: {found.ends}"
    assert found.trace and found.events


@pytest.mark.parametrize("seed", range(8))
def test_the_journal_replayed_gives_the_same_machine(seed: int) -> None:
    """As the search itself sees after every event (`machines.py`); here on random ways, which the validator of real runs allows."""
    bounds = Bounds(transactions=2, spares=2, faults={"kill": 2, "hung": 1, "migrate": 1, "repeat": 1}, together=3)
    explorer = Explorer(bounds, holds, reduced=False)
    chance = random.Random(seed)
    state = explorer.start()
    explorer.log = list(explorer.opening)
    while options := explorer.after(state):
        state = explorer.tidied(chance.choice(options)[1]())
    spec = JobSpec("job", 2, 2, 1, 2, False, max_losses_per_transaction=99)
    again = Machine(spec, Timeouts())
    for event in explorer.log:
        again.handle(event, 0.0)
    assert machine_key(again) == machine_key(state.machine)
    Validator(Settings(spec, Timeouts())).run((0.0, event) for event in explorer.log)

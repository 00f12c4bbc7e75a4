"""What changes for the first time between two walks is seen at the next vote."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.worker.census.census_found import Found, script

from understudy.worker.census.bindings import REST, Bindings, WalkBudget
from understudy.worker.census.census import CLOSELY
from understudy.worker.census.roots import MODULE, ModuleNames

__all__ = ["script"]


def rebound(bindings: Bindings, names: dict[str, Any]) -> dict[str, Any]:
    return {path.name: value for path, value in bindings.rebound({(MODULE, "m"): ModuleNames(names)})}


def test_names_that_are_bound_to_another_object() -> None:
    bindings, names = Bindings(), {"scale": 1.0, "items": [1], "same": "a"}
    assert rebound(bindings, names) == {}
    assert rebound(bindings, names) == {}
    names["scale"], names["items"], names["new"] = 0.5, [1], 3
    assert rebound(bindings, names).keys() == {"scale", "items", "same", "new"}  # one more name: all are looked at
    names["scale"] = 0.25
    assert rebound(bindings, names) == {"scale": 0.25}
    assert rebound(bindings, names) == {}


def test_no_object_is_kept_alive() -> None:
    bindings, names = Bindings(), {"big": object()}
    rebound(bindings, names)
    assert all(kept is not names["big"] for seen in bindings._seen.values() for kept in seen)


def after_the_first_transactions() -> Found:
    found = Found()
    for _ in range(CLOSELY + 1):
        found.census.note()
        found.census.look_at_names()
        found.census.committed()
    return found


@pytest.mark.parametrize("change", ["counter", "Schedule.rate"])
def test_a_first_change_after_the_first_transactions_is_seen_at_the_vote(change: str, script: Any) -> None:
    script.Schedule = type("Schedule", (), {"rate": 1.0, "__module__": script.__name__})
    found = after_the_first_transactions()
    assert found.names(closely=False) == set()
    owner = script.Schedule if change == "Schedule.rate" else script
    setattr(owner, change.rpartition(".")[2], 17.0)
    assert found.names(closely=False) == set()
    found.census.look_at_names()
    assert found.names(closely=False) == {change.rpartition(".")[2]}


def test_a_walk_is_due_when_a_thousand_times_its_duration_has_passed() -> None:
    now = [0.0]
    budget = WalkBudget(lambda: now[0])
    now[0] = 10_000.0
    assert not budget.is_time()  # there has been none
    with budget.measured():
        now[0] += 0.5
    now[0] += 0.5 * REST
    assert not budget.is_time()
    now[0] += 0.1
    assert budget.is_time()


def test_a_list_of_registered_tensors_is_not_carried_when_other_names_appear(script: Any) -> None:
    """A newcomer would get copies of these tensors in it, and the optimizer would train others."""
    trained = torch.zeros(3, requires_grad=True)
    script.loose = [trained, torch.zeros(2)]
    found = Found(covered=[trained])
    found.census.note()
    found.census.look_at_names()
    script.appears, script.loose[1] = 1.0, torch.ones(2)
    with torch.no_grad():
        trained.add_(1.0)
    found.census.look_at_names()
    assert found.names(closely=False) == {"appears"}

"""What stays open in a survivor, loss after loss."""

from __future__ import annotations

import json

import pytest
from tests.integration.training import Training, training

from understudy.worker.transport.backends import rejoining

__all__ = ["training"]

LEFT = "thread pt_gloo_runloop"  # of each dead communicator: the known price of replacing them without C++
in_place = pytest.param(True, marks=pytest.mark.skipif(not rejoining.available(), reason="this torch has no _reconfigure (2.14 and newer)"))


@pytest.mark.parametrize("rejoin", [in_place, False], ids=["in place", "new"])
def test_a_survivor_of_several_losses_keeps_no_descriptor_and_at_most_one_sleeping_thread_of_each(training: Training, rejoin: bool) -> None:
    losses = (3, 6, 9, 12)
    faults = ",".join(f"before the vote:{step}:1" for step in losses)
    outcome = training.begin("leaks.py", faults=faults, spares=len(losses), UNDERSTUDY_REJOIN=str(int(rejoin))).ends()
    assert outcome.code == 0, outcome.output
    seen = [json.loads(line) for line in (outcome.folder / "open.txt").read_text().splitlines()]
    by_generation: dict[int, dict[str, int]] = {}
    for entry in seen:  # what stays open is there at every step; at the last one the next recovery may have begun to open its own
        known = by_generation.setdefault(entry["generation"], entry["open"])
        by_generation[entry["generation"]] = min(known, entry["open"], key=lambda there: sum(there.values()))
    assert sorted(by_generation) == [0, 1, 2, 3, 4]
    assert [there.pop(LEFT) for there in by_generation.values()] == ([1] * 5 if rejoin else [1, 2, 3, 4, 5])
    first, *after = by_generation.values()
    assert all(there == after[0] for there in after), after
    # torch's process group itself keeps the first generation's store, with its connection.
    assert after[0] == {**first, "socket": first["socket"] + 1}

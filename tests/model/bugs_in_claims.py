"""Bugs put into the handling of nodes of spares: their places (`core/places.py`), and those that are claimed (`core/floating.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from tests.model.bounds import Bounds
from tests.model.planting import Bug, nobody, stays
from understudy.core import events, floating, membership, places, quiesce, resume
from understudy.core.state import JobState
from understudy.core.transitions import WorkerState

CLAIM = Bounds(transactions=2, spares=0, floating=1, faults={"kill": 1})
ENDED = replace(CLAIM, faults={"kill": 1, "ended": 1}, together=2)
LEFT = Bounds(nodes=2, spares=0, floating=1, transactions=1, faults={"leave": 1, "late": 1}, together=2)
BACK = Bounds(nodes=2, floating=1, transactions=4, faults={"leave": 1, "wears": 1}, together=2)
MOVED = replace(LEFT, transactions=3, faults={"leave": 1}, together=1)
ONE_PLACE = Bounds(nodes=2, spares=0, spare_nodes=1, transactions=1, faults={"kill": 2}, together=2, replenish=True)
WORN = replace(LEFT, faults={"leave": 1, "wears": 1})


def _only_warming(state: JobState) -> bool:
    """The pause for a spare ignores claims."""
    return bool(state.idle(WorkerState.STARTING))


def _no_pause(state: JobState, event: events.ClaimEnded) -> str:
    """Nodes that the scheduler cannot give are not requested again."""
    node = ended(state, event)
    state.cancel(floating.TIMER)
    return node


ended = floating.ended


def _without_limit(state: JobState, ranks: list[int], why: Any) -> None:
    """One node for each rank, however many may be claimed."""
    with mock.patch.object(state, "spec", replace(state.spec, floating=9)):
        claim(state, [rank for rank in ranks for _ in range(4)], why)


claim = floating._claim


def _without_room(state: JobState) -> None:
    """Spares are replaced on a claimed node as anywhere else, even if its accelerators are in use."""
    for node in state.nodes.values():
        for _ in range(node.spares - len(node.idle(WorkerState.STARTING, WorkerState.WARM)) if not node.lost else 0):
            membership.start_worker(state, node, spare=True)


def _keeps(self: JobState, exit_code: int, message: str) -> None:
    """At the end of the job nothing is given back."""
    claims, self.claims = self.claims, {}
    end(self, exit_code, message)
    self.claims = claims


end = JobState.end


BUGS_IN_CLAIMS = [
    Bug("the job does not hold for a node that is claimed", quiesce, "_may_come", _only_warming, CLAIM),
    Bug("what the scheduler cannot give is not asked for again", floating, "ended", _no_pause, ENDED),
    Bug("more is claimed than may be", floating, "_claim", _without_limit, CLAIM),
    Bug("what is claimed is not given back in plain training", floating, "release", stays, WORN),
    Bug("what is claimed is not given back at the end", JobState, "end", _keeps, replace(CLAIM, transactions=1)),
    Bug("a claimed node is given back with a rank on it", floating, "_is_free", lambda node: True, MOVED),
    Bug("a node is taken in whose claim is over", floating, "takes", lambda state, event: True, LEFT),
    Bug("a rank stays on a claimed node", floating, "_go", nobody, BACK),
    Bug("two ranks on one place", places, "bounded", lambda state, node: node.claim >= 0, ONE_PLACE),
    Bug("more workers than accelerators", resume, "top_up", _without_room, replace(MOVED, replenish=True)),
    Bug("nobody asks for a node for a rank that is to leave", floating, "settle", stays, LEFT),
]

"""Forecast a loss: which warm spare would take which rank if these nodes were lost now.

The rule of real recoveries (`assignment.serve`) is applied to a copy of the state. This does not show whether the state of the ranks would
survive; the coverage notice does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from understudy.core.assignment import serve
from understudy.core.state import JobState, Worker
from understudy.core.topology import splits
from understudy.core.transitions import WorkerState

_HOLDING = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
_IDLE = (WorkerState.STARTING, WorkerState.WARM)


@dataclass(frozen=True)
class Succession:
    """The outcome for one rank."""

    rank: int
    worker: str  # the spare that takes it; empty: none can at once
    node: str  # the node of that spare
    splits: bool  # its group then spans one more NVLink domain


@dataclass(frozen=True)
class Forecast:
    ranks: tuple[Succession, ...]  # the ranks that would be lost
    coming: int  # spares that are starting, or are started over, for ranks that no spare takes at once


def forecast(state: JobState, nodes: Collection[str]) -> Forecast:
    """Return the outcome of losing all these nodes at once. Nothing changes."""
    there = _without(state, nodes)
    lost = [rank for rank, name in state.ranks.items() if state.workers[name].node in nodes and state.workers[name].state in _HOLDING]
    found: dict[int, Succession] = {}

    def take(rank: int, spare: Worker) -> None:
        node = there.nodes[spare.node]
        found[rank] = Succession(rank, spare.name, spare.node, splits(there, rank, node))
        newcomer = replace(spare, rank=rank, state=WorkerState.NEWCOMER)
        there.nodes[node.name] = replace(node, workers={**node.workers, spare.name: newcomer})
        there.workers[spare.name] = newcomer
        del there.unassigned[spare.name]
        there.ranks[rank] = spare.name

    serve(there, lost, take)
    ranks = tuple(found.get(rank, Succession(rank, "", "", False)) for rank in lost)
    return Forecast(ranks, len(there.idle(*_IDLE)))


def _without(state: JobState, nodes: Collection[str]) -> JobState:
    """Return a copy of the state in which these nodes and their workers are lost. It shares with the original what `serve` does
    not change.
    """
    there = replace(state, nodes=dict(state.nodes), workers=dict(state.workers), unassigned=dict(state.unassigned), ranks=dict(state.ranks))
    for name in nodes:
        node = there.nodes[name]
        for worker in node.workers.values():
            there.workers[worker.name] = replace(worker, state=WorkerState.LOST)
            there.unassigned.pop(worker.name, None)
        there.nodes[name] = replace(node, lost=True, spares=0, workers={})
    return there

"""What a loss would do: which warm spare would take which rank if these nodes were lost now.

It is asked of a copy, by the rule that decides in earnest (`assignment.serve`). Whether the state of the ranks would survive is another
question, which the coverage notice answers.
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
    """What becomes of one rank."""

    rank: int
    worker: str  # the spare that takes it; empty: none can at once
    node: str  # where that is
    splits: bool  # its group spans one more NVLink domain then


@dataclass(frozen=True)
class Forecast:
    ranks: tuple[Succession, ...]  # those that would be lost
    coming: int  # spares that start, or are started over, for those that no spare takes at once


def forecast(state: JobState, nodes: Collection[str]) -> Forecast:
    """Return what the loss of these nodes at one moment would do. Nothing changes."""
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
    """A copy in which these nodes are lost, and whatever was there. It shares with the original what `serve` does not change."""
    there = replace(state, nodes=dict(state.nodes), workers=dict(state.workers), unassigned=dict(state.unassigned), ranks=dict(state.ranks))
    for name in nodes:
        node = there.nodes[name]
        for worker in node.workers.values():
            there.workers[worker.name] = replace(worker, state=WorkerState.LOST)
            there.unassigned.pop(worker.name, None)
        there.nodes[name] = replace(node, lost=True, spares=0, workers={})
    return there

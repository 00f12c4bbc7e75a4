"""Decide once per recovery: redo the transaction, or roll forward.

A vote passes only if every rank has voted, and a rank's vote counts only once its buddy holds the rank's copy of that transaction. So the
positions of the survivors show what may have happened to the lost ranks. With T the lowest transaction among the survivors:

- A survivor is beyond T: the vote of T has passed, so every survivor at T has voted and holds complete gradients. They roll forward.
  `start` is T + 1.
- All survivors are at T and all have voted: no survivor has passed the vote, but a lost rank may have. If it has, its buddy has its copy of
  T. With every absent rank's copy of T at hand, roll forward. Without one of them, that rank cannot have voted, so no rank has passed: redo
  T.
- Otherwise the vote of T cannot have passed anywhere: redo T.

Survivors cannot be further apart than one transaction, because the vote is a barrier. T = -1 is the set-up of the script, which ends with a
vote as well; "redo -1" means that nothing was done yet and the workers start from scratch.

A rank without a survivor is *absent*: it is lost, or its holder is a newcomer that has not been verified. Its newcomer needs the rank-local
state as of `start - 1`, from a survivor that holds that copy.

Known limit: a copy carries no generation. Workers therefore drop their copies of `start` and later when they get `Recover`, so that no copy
from an attempt that was undone counts for the next attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from understudy.core.model import BuddyCopyRef, Position, VotePhase

REDO = "redo"
ROLL_FORWARD = "roll forward"
BOUNDARY = "boundary"
SKIP = "skip"  # a failed section is skipped; only in a closed incident
SETUP = -1


class InvariantBroken(Exception):
    """The survivors' positions contradict each other. To go on could silently produce wrong results."""


@dataclass(frozen=True)
class Decision:
    """The decision of a recovery. `start` is the next transaction to run; `holders` pairs with the sorted absent ranks, -1 where no
    survivor has the copy.
    """

    start: int
    decision: str
    absent: tuple[int, ...]
    holders: tuple[int, ...]

    @property
    def from_scratch(self) -> bool:
        return self.start == SETUP

    @property
    def uncovered(self) -> tuple[int, ...]:
        return tuple(rank for rank, holder in zip(self.absent, self.holders, strict=True) if holder < 0)


def decide(positions: Mapping[int, Position], copies: Mapping[int, Collection[BuddyCopyRef]], absent: Collection[int]) -> Decision:
    """Decide from the survivors' `positions` and the `copies` that they hold, both by rank.

    Raises `InvariantBroken` if the positions contradict the protocol, `ValueError` without survivors.
    """
    if not positions:
        raise ValueError("no survivors, nothing to decide")
    lowest = min(position.transaction for position in positions.values())
    highest = max(position.transaction for position in positions.values())
    if highest - lowest > 1:
        raise InvariantBroken(f"survivors are more than one transaction apart: {_list(positions)}")
    behind = {rank: position for rank, position in positions.items() if position.transaction == lowest}
    all_voted = all(position.stand is VotePhase.VOTED for position in behind.values())
    if highest > lowest and not all_voted:
        raise InvariantBroken(f"the vote of transaction {lowest} has passed, but not everyone voted: {_list(positions)}")

    ordered = tuple(sorted(absent))
    holders = _holders(copies, set(ordered))
    forward = highest > lowest or (all_voted and all((rank, lowest) in holders for rank in ordered))
    start = lowest + 1 if forward else lowest
    return Decision(
        start=start,
        decision=ROLL_FORWARD if forward else REDO,
        absent=ordered,
        holders=tuple(holders.get((rank, start - 1), -1) for rank in ordered),
    )


def _holders(copies: Mapping[int, Collection[BuddyCopyRef]], absent: Collection[int]) -> dict[tuple[int, int], int]:
    """Return the lowest rank that holds each copy, by absent rank and transaction."""
    found: dict[tuple[int, int], int] = {}
    for rank, kept in copies.items():
        for copy in kept:
            if copy.rank in absent:
                key = copy.rank, copy.transaction
                found[key] = min(rank, found.get(key, rank))
    return found


def _list(positions: Mapping[int, Position]) -> str:
    return ", ".join(f"rank {rank} at {p.transaction} ({p.stand})" for rank, p in sorted(positions.items()))

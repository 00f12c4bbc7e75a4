"""Rank-local values that change behind the vote: found, told, and handed over again where that happens.

A copy goes to the buddies with the vote. What changes between the vote and the next begin (a random number drawn by the optimizer,
or between two steps) would be lost with its rank. So at fixed points behind the vote each rank looks whether its rank-local
state has changed. The first time it tells the user; its next vote tells the other ranks, and from then on every rank hands its
copy over again at that point. A loss in between loses that one change. One such point is right before each transaction, for what the
body of a loop changes there: a newcomer runs that code too, but what it computes is overwritten by the copy.
"""

from __future__ import annotations

POINTS = 16  # how many such points of a script are told apart


class LatePoints:
    """The points that this rank knows of, by number in order of appearance, which is the same on every rank."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.agreed: set[int] = set()  # all ranks hand over there
        self._found: set[int] = set()  # this rank has seen a change there

    def number(self, point: str) -> int:
        return self.numbers.setdefault(point, len(self.numbers))

    def found(self, number: int) -> None:
        self._found.add(number)

    def flags(self) -> list[int]:
        """For the agreement in a vote: 1 for every point at which this rank has seen a change."""
        return [int(number in self._found) for number in range(POINTS)]

    def agree(self, flags: list[int]) -> None:
        self.agreed |= {number for number, flag in enumerate(flags) if flag}
        self._found |= self.agreed

    def adopt(self, numbers: dict[str, int], agreed: list[int]) -> None:
        """After a recovery all ranks go on with what one of them knew: they must hand over at the same points."""
        self.numbers = dict(numbers)
        self.agreed = set(agreed)
        self._found |= self.agreed

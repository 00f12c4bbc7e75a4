"""What goes with a vote: numbers of which the greatest counts, so that a number and its negative tell whether all are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.worker.state.pre_vote_changes import FLAGS as PRE_VOTE
from understudy.worker.verification.post_vote_changes import POINTS


@dataclass(frozen=True)
class Flags:
    pause: int  # the generation for which this rank has been asked to pause, -1: none
    shared: int  # a digest of what all ranks have alike, as far as known
    redo: int  # 1: what this rank has redone is not what it had come to before
    pre_vote: Sequence[int]
    post_vote: Sequence[int]
    compared: Sequence[int]

    def numbers(self) -> list[int]:
        return [self.pause, -self.pause, self.shared, -self.shared, self.redo, *self.pre_vote, *self.post_vote, *self.compared]


@dataclass(frozen=True)
class Agreed:
    """The same, of all ranks."""

    pause: int  # the generation for which all have been asked to pause, -1: none or not all
    alike: bool  # whether the digests of what all have alike are equal
    redo_differs: bool  # on any rank
    pre_vote: Sequence[int]
    post_vote: list[int]
    compared: Sequence[int]

    @staticmethod
    def of(numbers: Sequence[int]) -> Agreed:
        pause, asked, shared, negative, redo, *rest = numbers
        points = PRE_VOTE + POINTS
        for_all = pause if pause == -asked else -1
        return Agreed(for_all, shared == -negative, redo > 0, rest[:PRE_VOTE], rest[PRE_VOTE:points], rest[points:])

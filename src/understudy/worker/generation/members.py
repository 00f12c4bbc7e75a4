"""The members of a recovery, by number.

Ranks have their own numbers. The old worker of a rank that is being moved (a leaver: healthy, and only a donor) has world_size + its
place among the leavers.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.commands import Recover


@dataclass(frozen=True)
class Members:
    recovery: Recover
    world_size: int

    @property
    def lead(self) -> int:
        """Return the rank that speaks for all survivors where one is enough."""
        return next(rank for rank in range(self.world_size) if rank not in self.recovery.newcomers)

    @property
    def donors(self) -> list[int]:
        """Return all members that can give state."""
        survivors = [rank for rank in range(self.world_size) if rank not in self.recovery.newcomers]
        return survivors + [self.world_size + number for number in range(len(self.recovery.leavers))]

    @property
    def count(self) -> int:
        return self.world_size + len(self.recovery.leavers)

    def rank_of(self, member: int) -> int:
        return member if member < self.world_size else self.recovery.leavers[member - self.world_size]

    def leaver_of(self, rank: int) -> int | None:
        """Return the number of the old worker of a rank that is being moved."""
        leavers = self.recovery.leavers
        return self.world_size + leavers.index(rank) if rank in leavers else None

    def holder_of(self, rank: int) -> str:
        """Return the worker whose copy of a newcomer's rank counts: its old worker, or the holder that the orchestrator named."""
        return "leaver" if rank in self.recovery.leavers else str(self.recovery.holders[self.recovery.newcomers.index(rank)])

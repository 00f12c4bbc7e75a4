"""Plan where a rank is killed in a check and in what order, and record how each kill went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PHASES = {  # points of `chaos.points`, in their default order
    "vote": "at its vote, when all others have reached theirs",
    "backward": "in backward, while the others wait for it",
    "forward": "as its step begins, while the others wait for it",
    "apply": "after its vote, before the optimizer's step",
    "between": "between two steps",
}
GAP = 2  # steps from one kill to the next: the interrupted one, and one more


@dataclass
class Kill:
    """A planned kill. `transaction` and the fields after it are -1 or empty until it has happened."""

    rank: int
    before: int  # committed steps
    phase: str = "vote"
    transaction: int = -1
    worker: str = ""
    seconds: float | None = None  # to the next commit by all ranks; None if there was none
    at: int = -1  # steps committed at the kill; -1: not yet

    @property
    def step(self) -> int:
        """The step in which it happens or, between two steps, the one that has just ended."""
        return self.at + (self.phase != "between") if self.at >= 0 else self.before + 1

    @property
    def struck(self) -> bool:
        return self.transaction >= 0


def planned(rank: int, before: int, phases: Sequence[str]) -> list[Kill]:
    """Plan one kill for each phase, the first when `before` steps are committed."""
    return [Kill(rank, before + GAP * number, phase) for number, phase in enumerate(phases)]


def described(kills: Sequence[Kill]) -> str:
    """Describe the kills in words; all of them have happened."""
    where = [f"in step {kill.step} ({kill.phase})" for kill in kills]
    places = f"{', '.join(where[:-1])} and {where[-1]}" if len(where) > 1 else where[0]
    return f"rank {kills[0].rank} was killed {places}"

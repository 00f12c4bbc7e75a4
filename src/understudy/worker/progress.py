"""The progress of a rank: one object, which its main thread writes and its control thread may read."""

from __future__ import annotations

from dataclasses import dataclass, field

from understudy.core.model import Position, VotePhase


@dataclass
class Skipped:
    """Sections whose errors are reported, by transaction; -1: none."""

    failed: int = -1  # the last one that has failed on this rank
    agreed: int = -1  # the last one that all ranks skip


@dataclass
class Uncommitted:
    """A recovery whose first commit is still to come: times in Unix seconds; 0: there is none."""

    attached: float = 0.0  # when the last attachment ended
    copied: float = 0.0  # when this rank's buddies had its copy again


@dataclass
class Progress:
    rank: int
    world_size: int
    transaction: int = -1  # the current or next one; -1 is the set-up
    step: int = 0  # committed steps
    generation: int = -1  # the one that this worker is attached to
    phase: VotePhase = VotePhase.RUNNING  # of the transaction
    kind: str = ""  # of the running transaction: step, section; "" between two
    function: str = ""  # its name
    past_vote: bool = False  # the running attempt has passed its vote
    must_redo: bool = False  # the running attempt has failed
    finished: bool = False  # the script has ended
    sections: Skipped = field(default_factory=Skipped)
    recovery: Uncommitted = field(default_factory=Uncommitted)

    @property
    def position(self) -> Position:
        return Position(self.transaction, self.phase)

    @property
    def running(self) -> str:
        """The running transaction, for a person."""
        return f"{self.kind} {self.function}"

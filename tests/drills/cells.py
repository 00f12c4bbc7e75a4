"""Which fault strikes which process in which phase of a drill, and the allowed results of the drill. Training must go on in each, bit by
bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

# Of a phase: the point (`understudy.chaos.points`) where the rank or its spare is paused while the fault strikes.
PHASES = {
    "spare in its set-up": "newcomer",
    "spare ready": "prepared",
    "rank tells where it is": "drill begin",
    "state on its way": "drill state",
    "collectives on their way": "drill collective",
    "rank waits at its vote": "rehearsal begin",
    "rank behind its vote": "drill end",
    "spare in its first attempt": "rehearsal first",
    "spare in its redo": "rehearsal redo",
    "verdict said": "rehearsal over",
}
WAITING = "rank waits at its vote"  # it cannot pass it, because the spare is paused before it takes the state
SAID = "verdict said"

RANK, OTHER, SPARE, ORCHESTRATOR = "the rank", "another rank", "the spare", "the orchestrator"
VICTIMS = (RANK, OTHER, SPARE, ORCHESTRATOR)
FAULTS = (("killed", RANK), ("killed", OTHER), ("killed", SPARE), ("killed", ORCHESTRATOR), ("stopped", SPARE), ("stopped", RANK))

HANG_LIMIT, SETUP_LIMIT = 10.0, 30.0  # seconds; a rank that is stopped waits for the first, a drill for the second at most


@dataclass(frozen=True)
class Cell:
    phase: str
    what: str  # killed or stopped
    victim: str

    @property
    def name(self) -> str:
        return f"{self.phase}, {self.victim} is {self.what}"

    @property
    def points(self) -> tuple[str, ...]:
        """Where a process is paused; at the first point until the fault has struck, at others until they are reached."""
        first = PHASES[self.phase]
        return (first, "drill vote") if self.phase == WAITING else (first,)

    @property
    def loses_a_rank(self) -> bool:
        return self.victim in (RANK, OTHER)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Never that the script is at fault. A spare that is stopped between attempts reports nothing any more; an orchestrator that is
        killed is started again, and the drill goes on."""
        if self.phase == SAID:
            return ("same", "broken")  # whichever the orchestrator hears first
        if self.phase == WAITING and self.victim == ORCHESTRATOR:
            return ("same", "broken")  # the rank may have waited long enough before its spare is let go
        return ("same",) if self.victim == ORCHESTRATOR else ("broken",)


def cells() -> list[Cell]:
    return [Cell(phase, *fault) for phase in PHASES for fault in FAULTS]


def diagonal() -> list[Cell]:
    """Every fault once, and every phase that a kill has to itself; with what takes little time."""
    kills = cycle(fault for fault in FAULTS if fault[0] == "killed")
    found = [Cell(phase, *fault) for phase, fault in zip(PHASES, kills, strict=False)]
    return [*found, Cell(WAITING, "stopped", SPARE), Cell("state on its way", "stopped", RANK)]

"""Record one interruption while it lasts, from the fault to the next transaction that every rank commits.

Times come from two sources: the machine's own events (detect, abort, assign), stamped by the orchestrator's clock on arrival, and the
workers' `PhaseDone` (setup, attach, transfer, verify, redo). If several workers report the same phase, the one that ends last is kept,
because the others waited for it.

Known limits: workers' times come from their own hosts' clocks. A second loss before the end extends the same incident; a phase that ran
twice shows its last run, but bytes are summed over all runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from understudy.core.events import Committed
from understudy.core.model import WORST_FIRST, AwaitedDrills, Evidence, Grade, Incident, Interruption, LossCause, Span


@dataclass
class Commits:
    """Collect the evidence of a rank's first commits, one in each generation of an incident."""

    evidence: Evidence = Evidence.FIRST  # the worst of its workers: what one of them sent is in the state of all ranks
    whole: bool = True  # all collectives of the redo were compared, or its result was

    def add(self, event: Committed) -> None:
        self.evidence = min(self.evidence, event.evidence, key=WORST_FIRST.index)
        self.whole = self.whole and not in_part(event)


def in_part(event: Committed) -> bool:
    """Return whether only a part of what was redone was compared."""
    same, of = event.collectives
    return event.evidence is Evidence.SAME and not ((same == of and event.size[0] > 0) or event.compared > 0)


@dataclass
class OpenIncident:
    """An incident that is not over. `fault_at` and `seen_at` are unix seconds: when it happened, and when the machine learned of it."""

    number: int
    planned: bool
    fault_at: float
    seen_at: float
    reason: str
    step: int = 0
    transaction: int = 0
    decision: str = ""
    ranks: list[Interruption] = field(default_factory=list)
    newcomers: list[str] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    bytes_moved: int = 0
    digests_verified: int = 0
    notes: list[str] = field(default_factory=list)
    disputed: bool = False
    unexplained: bool = False  # communication broke, and no worker was lost
    redone: bool = False  # a transaction was redone
    differed: str = ""  # the first difference between a redo and the interrupted attempt
    held_in: int = -1  # the newest generation in which a redo differed and the job was paused for it
    believed: bool = False  # an operator has chosen the state to keep
    pause: bool = False  # no fault: the incident before it is unproven, and the job waits for an operator
    section: bool = False  # a section, not a step, was redone
    skipped: bool = False  # ... and it was skipped, because its errors are to be reported
    collectives: tuple[int, int] = (0, 0)  # as of `Incident`
    compared: tuple[int, int] = (0, 0)
    proven_by: set[int] = field(default_factory=set)  # ranks whose redo matched their earlier result
    commits: dict[int, Commits] = field(default_factory=dict)  # by rank
    first_in_part: bool = False  # a survivor has redone the first step of the job, and only a part of it was compared
    uncovered: list[str] = field(default_factory=list)  # as of `Committed`, of all ranks
    copied: float = 0.0  # the latest `Committed.copied`
    grade: Grade | None = None
    why: str = ""
    awaits: AwaitedDrills | None = None

    def lost(self, rank: int, cause: LossCause, detail: str, worker: str) -> None:
        self.ranks.append(Interruption(rank, cause, detail, worker))

    def assigned(self, rank: int, worker: str, now: float) -> None:
        """Record that `worker` takes `rank`: the last interruption of this rank gets its new worker."""
        for index in range(len(self.ranks) - 1, -1, -1):
            if self.ranks[index].rank == rank:
                self.ranks[index] = replace(self.ranks[index], new_worker=worker)
                break
        if worker not in self.newcomers:
            self.newcomers.append(worker)
        self.measure("assign", self.seen_at, now)

    def measure(self, phase: str, started: float, ended: float) -> None:
        """Record that a phase lasted from `started` to `ended` (unix seconds)."""
        known = self.spans.get(phase)
        begin = started - self.fault_at
        if known is None or ended - self.fault_at >= known.start + known.seconds:
            self.spans[phase] = Span(phase, begin, max(0.0, ended - started))

    def committed(self, rank: int, event: Committed) -> None:
        """Record a commit of this rank and its evidence."""
        (same, of), (size, size_of) = event.collectives, event.size
        self.collectives = self.collectives[0] + same, self.collectives[1] + of
        self.compared = self.compared[0] + size, self.compared[1] + size_of
        self.proven_by |= {rank} if event.compared > 0 else set()
        self.commits.setdefault(rank, Commits()).add(event)
        self.first_in_part |= event.step == 1 and in_part(event) and event.worker not in self.newcomers
        self.uncovered += [name for name in event.uncovered if name not in self.uncovered]
        self.copied = max(self.copied, event.copied)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def freeze(self, now: float | None = None) -> Incident:
        """Return the incident as it is now; a time `now` closes it."""
        return Incident(
            number=self.number,
            planned=self.planned,
            fault_at=self.fault_at,
            transaction=self.transaction,
            step=self.step,
            ranks=tuple(self.ranks),
            decision=self.decision,
            spans=tuple(sorted(self.spans.values(), key=lambda span: (span.start, span.phase))),
            bytes_moved=self.bytes_moved,
            digests_verified=self.digests_verified,
            notes=tuple(self.notes),
            disputed=self.disputed,
            proven_by=tuple(sorted(self.proven_by)),
            collectives=self.collectives,
            compared=self.compared,
            uncovered=tuple(self.uncovered),
            without_copies=max(0.0, self.copied - self.fault_at) if self.copied else 0.0,
            grade=self.grade,
            why=self.why,
            awaits=self.awaits,
            seconds=-1.0 if now is None else max(0.0, now - self.fault_at),
        )

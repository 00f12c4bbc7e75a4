"""The frozen values that events and commands are made of.

Everything here is pure data. A *rank* is a role (0..world_size-1). A *worker* is a process that may hold a rank. A *generation* numbers the
assignments of ranks to workers; messages of an older generation are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from understudy.messages import forming


class VotePhase(StrEnum):
    """A worker's phase in a transaction."""

    RUNNING = "running"  # inside it, before its vote
    VOTED = "voted"  # inside its vote: its own collectives are complete, those of the other ranks may not be
    IDLE = "idle"  # the transaction has not begun here; the one before it is committed


@dataclass(frozen=True)
class Position:
    """A worker's place in the job. `transaction` counts from 0; -1 is the script's setup, before the first transaction."""

    transaction: int
    stand: VotePhase


@dataclass(frozen=True)
class BuddyCopyRef:
    """A buddy copy on a worker: the rank-local state of `rank`, as of its vote in `transaction`."""

    rank: int
    transaction: int


class Unproven(StrEnum):
    """The action after an unproven incident."""

    CONTINUE = "continue"
    PAUSE = "pause"  # until an operator continues the job


@dataclass(frozen=True)
class JobSpec:
    """The options of `understudy run`. Times are in seconds."""

    job: str
    world_size: int
    workers_per_node: int
    nodes: int = 1
    spares: int = 1  # in total
    replenish: bool = True  # start a new spare for each one that takes a rank
    max_restarts: int = 3  # of the whole job, and only before its first transaction
    max_losses_per_transaction: int = 3  # more losses of one rank at one transaction are not the hardware's fault: the job ends
    prepared: int = 0  # number of spares that run the script's setup in advance, each for one rank
    drill_at: int = 0  # the step at which the first automatic drill begins (`proofs.py`); 0: no automatic drills
    require_drill: bool = False  # the job ends if a drill finds that a rank is not survivable
    unproven: Unproven = Unproven.CONTINUE
    admission: bool = False  # a node whose taints have ended must pass a check before it is trusted again (`admission.py`)
    home_after: float = -1.0  # seconds for which a node must be trusted again before its ranks return (`home.py`); negative: never
    spare_nodes: int = 0  # nodes without ranks, numbered after the others, each with `workers_per_node` of the spares
    bounded_places: bool = (
        True  # nodes for spares take no more ranks than they have places (`places.py`); False: an earlier version began the job
    )
    replaces_nodes: bool = False  # the scheduler starts another node for each lost one
    floating: int = 0  # number of nodes that may be claimed from the scheduler at a time (`floating.py`)
    keep_together: tuple[str, ...] = ()  # groups of ranks that must stay within one NVLink domain (`topology.py`)


@dataclass(frozen=True)
class Timeouts:
    """Every limit of the control plane, in seconds. Limits that contradict each other are refused."""

    beat: float = 0.2
    """interval between two heartbeats of a worker"""
    hang_floor: float = 60.0
    """minimum time without progress after which a rank is considered hung"""
    hang_factor: float = 20.0
    """a second minimum, as a multiple of the duration of the job's longest transaction; the greater of the two applies"""
    hang_first: float = 900.0
    """limit of a newcomer's setup (which may compile and download), and of the wait for a spare to become warm"""
    alone: float = 1800.0
    """how long a rank may work while all others wait for it, outside of steps and in the first two calls of each step function"""
    quiesce: float = 300.0
    """a survivor that does not stop and report its position within this time after a loss is lost"""
    stop: float = 10.0
    """from SIGTERM to SIGKILL"""
    heartbeat: float = 0.5
    """interval between two heartbeats of a node"""
    node_lost: float = 2.0
    """a node is lost if it is silent for longer, or if its agent does not come back within this time"""

    def __post_init__(self) -> None:
        if not 0 < self.beat < self.hang_floor <= self.hang_first:
            raise ValueError(forming.HANG_LIMITS(beat=self.beat, hang_floor=self.hang_floor, hang_first=self.hang_first))
        if self.hang_factor < 1:
            raise ValueError(forming.HANG_FACTOR(factor=self.hang_factor))
        if self.quiesce <= 0 or self.stop <= 0 or self.alone <= 0:
            raise ValueError(forming.NOT_POSITIVE())
        if not 0 < 2 * self.heartbeat <= self.node_lost < self.quiesce:
            raise ValueError(forming.NODE_LIMITS(heartbeat=self.heartbeat, node_lost=self.node_lost, quiesce=self.quiesce))


class LossCause(StrEnum):
    KILLED = "killed"  # by a signal from outside (SIGKILL, SIGTERM, ...)
    CRASHED = "crashed"  # by a signal that it raised itself (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL)
    EXITED = "exited"  # the process ended without finishing the script
    HUNG = "hung"  # no progress for longer than the limit
    NODE = "node"  # its agent has gone
    DIGEST = "digest"  # a newcomer whose state did not verify
    DEVICE = "device"  # its device failed, according to an exception in its process
    CORRUPT = "corrupt"  # its state differs from that of its replicas, and the majority of them or an operator decided against it
    DRAINED = "drained"  # it was on a drained node at the drain's deadline
    MIGRATED = "migrated"  # a healthy worker whose rank was moved


class DrillVerdict(StrEnum):
    """The result of a drill (`drill.py`)."""

    SAME = "same"  # the spare computed the same bits as the rank
    PARTLY = "partly"  # the same, as far as it was compared: the amount of data that is sent is limited
    DIFFERENT = "different"  # the job would not survive a loss of the rank
    NOT_REPRODUCIBLE = "not reproducible"  # two attempts of the spare itself differ
    BROKEN = "broken"  # no result


class Evidence(StrEnum):
    """The evidence that a rank's first commit after a recovery gives for what it computed."""

    UNSAID = ""  # from a worker of an earlier version
    FIRST = "first"  # it redid nothing
    SAME = "same"  # everything that could be compared matched: the inputs of the earlier attempt's collectives, or its result
    NOTHING = "nothing"  # there was nothing to compare with
    DIFFERENT = "different"


WORST_FIRST = (Evidence.UNSAID, Evidence.DIFFERENT, Evidence.NOTHING, Evidence.SAME, Evidence.FIRST)


class Grade(StrEnum):
    """The evidence that the result of an incident is bitwise the same as without it (`grades.py`)."""

    PROVEN = "proven"
    DRILLED = "drilled"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class DrillResult:
    """The result of one drill."""

    number: int
    rank: int
    worker: str  # the spare
    verdict: DrillVerdict
    step: int  # the job's step at which it ran
    detail: str
    at: float  # unix time
    compared: int = 0
    collectives: int = 0
    left_out: int = 0
    bytes_moved: int = 0
    pause: float = 0.0
    changing: frozenset[tuple[str, str]] = frozenset()  # unregistered state known to change: where and name
    since: int = -1  # the generation in which the rank's worker was a newcomer; -1: it has had the rank from the start


@dataclass(frozen=True)
class Span:
    """One measured phase of an incident. `start` is in seconds after the fault; `seconds` is its length."""

    phase: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Interruption:
    """One rank in an incident."""

    rank: int
    cause: LossCause
    detail: str
    old_worker: str
    new_worker: str = ""


@dataclass(frozen=True)
class AwaitedDrills:
    """The drills that an unproven incident still needs."""

    ranks: tuple[int, ...]  # ranks that need a drill each, of themselves or of a rank with the same role
    judged: tuple[int, ...]  # all ranks that the incident concerns: a failed drill of one of them counts, too
    held: int  # a passed drill counts only for a worker that already had its rank in this generation, as the lost one did
    after: int  # the number of the last drill before the end of the incident
    changing: frozenset[tuple[str, str]]  # as in `DrillResult`, at that time: each drill has to cover it
    passed: tuple[str, ...] = ()  # the drills that have passed since, as text


@dataclass(frozen=True)
class Incident:
    """One interruption, from the fault to the next step that every rank committed. Times are unix seconds, durations are seconds."""

    number: int
    planned: bool
    fault_at: float
    transaction: int  # the one that was redone, or the next one after a roll forward
    step: int  # last committed step when the fault happened
    ranks: tuple[Interruption, ...]
    decision: str = ""  # "redo", "roll forward", "boundary" (planned), "skip" (a section)
    spans: tuple[Span, ...] = ()
    bytes_moved: int = 0
    digests_verified: int = 0
    steps_lost: int = 0
    notes: tuple[str, ...] = ()
    disputed: bool = False  # replicas differed, and it could not be decided which one was right
    proven_by: tuple[int, ...] = ()  # survivors whose redo matched their result before the loss, bit by bit
    collectives: tuple[int, int] = (0, 0)  # of the redo, on all ranks: how many had the same input as before, and how many there were
    compared: tuple[int, int] = (0, 0)  # the same in bytes
    uncovered: tuple[str, ...] = ()  # names, the first few of each rank: state that the script changes and that is not carried over
    without_copies: float = 0.0  # seconds from the fault until the buddies of every rank had its copy again; 0: unknown
    grade: Grade | None = None  # None: the incident is open, or its workers are of an earlier version
    why: str = ""  # the reason for the grade
    awaits: AwaitedDrills | None = None  # the drills that are missing for a better grade
    raised: bool = False  # it was unproven when it ended, and drills have raised its grade since
    seconds: float = field(default=-1.0)  # from the fault to the next commit of every rank; -1 while open

    @property
    def cause(self) -> str:
        """Return the cause of the first loss; without a loss `section`, `corrupt` or `communication`."""
        if self.ranks:
            return str(self.ranks[0].cause)
        return "section" if self.decision == "skip" else "corrupt" if self.disputed else "communication"

"""The model of the protocol: the small frozen values that events and commands are made of.

Everything here is pure data. A *rank* is a role (0..world_size-1), a *worker* is a process that may hold one; a
*generation* numbers the assignments rank -> worker, and everything stale is fenced by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from understudy.messages import forming


class VotePhase(StrEnum):
    """Where a worker stands in a transaction."""

    RUNNING = "running"  # inside it, before its vote
    VOTED = "voted"  # inside its vote: this rank's collectives are done, it does not know whether all others' are
    IDLE = "idle"  # the transaction has not begun here; the one before it is committed


@dataclass(frozen=True)
class Position:
    """A worker's place in the job: `transaction` counts from 0; -1 is the setup of the script, before the first one."""

    transaction: int
    stand: VotePhase


@dataclass(frozen=True)
class BuddyCopyRef:
    """A buddy copy that a worker holds: the rank-local state of `rank`, as of its vote in `transaction`."""

    rank: int
    transaction: int


class Unproven(StrEnum):
    """The action after an unproven incident (`grades.py`)."""

    CONTINUE = "continue"
    PAUSE = "pause"  # until an operator continues the job


@dataclass(frozen=True)
class JobSpec:
    """What `understudy run` was asked for. Times are in seconds."""

    job: str
    world_size: int
    workers_per_node: int
    nodes: int = 1
    spares: int = 1  # all of them
    replenish: bool = True  # start a new spare for each one that was used
    max_restarts: int = 3  # of the whole job, and only before its first transaction
    max_losses_per_transaction: int = 3  # the same rank lost so often at one transaction: not the hardware's fault
    prepared: int = 0  # so many of the spares run the script's set-up ahead, each for one rank
    drill_at: int = 0  # the step at which the first drill begins by itself (`proofs.py`); 0: none does
    require_drill: bool = False  # a drill that finds a rank not survivable ends the job
    unproven: Unproven = Unproven.CONTINUE
    admission: bool = False  # a node that was not trusted passes a check before it is again (`admission.py`)
    home_after: float = -1.0  # seconds for which a node is trusted again before its ranks go home (`home.py`); negative: they do not
    spare_nodes: int = 0  # behind the others: nodes without ranks, each with `workers_per_node` of the spares
    bounded_places: bool = (
        True  # nodes of spares take no more ranks than they have places (`places.py`); False: begun by an earlier version
    )
    replaces_nodes: bool = False  # the scheduler starts another node for each one that is lost
    floating: int = 0  # so many nodes may be claimed from the scheduler at a time (`floating.py`)
    keep_together: tuple[str, ...] = ()  # groups of ranks that are to stay within one NVLink domain (`topology.py`)


@dataclass(frozen=True)
class Timeouts:
    """Every limit of the control plane, in seconds. The order is an invariant: a shorter wait must not outlast a longer one."""

    beat: float = 0.2
    """a worker proves this often that it is scheduled"""
    hang_floor: float = 60.0
    """no progress for less than this is never a hang"""
    hang_factor: float = 20.0
    """nor is it for less than this many times the job's own longest transaction (a factor, not seconds)"""
    hang_first: float = 900.0
    """the limit of a set-up on a newcomer, and of waiting for a spare: compilation, downloads"""
    alone: float = 1800.0
    """a rank may work for so long while all others wait for it, outside of steps and in the first steps of a function"""
    quiesce: float = 300.0
    """a survivor that does not reach its position within this is itself lost"""
    stop: float = 10.0
    """from SIGTERM to SIGKILL"""
    heartbeat: float = 0.5
    """an agent proves this often that its node is there"""
    node_lost: float = 2.0
    """a node that is silent for longer, or whose agent does not come back, is lost"""

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
    CRASHED = "crashed"  # by a signal of its own making (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL)
    EXITED = "exited"  # the process ended without finishing the script
    HUNG = "hung"  # no progress for longer than the limit
    NODE = "node"  # its agent is gone
    DIGEST = "digest"  # a newcomer whose state did not verify
    DEVICE = "device"  # its device failed under it, as an exception in its process has said
    CORRUPT = "corrupt"  # its state is not that of its replicas, and most of them, or a person, speak against it
    DRAINED = "drained"  # it was on a drained node at the drain's deadline
    MIGRATED = "migrated"  # a healthy worker whose rank was moved


class DrillVerdict(StrEnum):
    """What a drill has shown (`drill.py`)."""

    SAME = "same"  # the spare has computed the same bits as the rank
    PARTLY = "partly"  # so it has as far as it was compared: there is a limit to what is sent
    DIFFERENT = "different"  # the rank is not survivable as it is
    NOT_REPRODUCIBLE = "not reproducible"  # two attempts of the spare itself differ
    BROKEN = "broken"  # nothing is known


class Evidence(StrEnum):
    """What the first commit of a rank after a recovery says for what it has computed."""

    UNSAID = ""  # by a worker of an earlier version
    FIRST = "first"  # it has redone nothing
    SAME = "same"  # all that there was to compare with: what the attempt before had put into collectives, or had come to
    NOTHING = "nothing"  # there was nothing to compare with
    DIFFERENT = "different"


WORST_FIRST = (Evidence.UNSAID, Evidence.DIFFERENT, Evidence.NOTHING, Evidence.SAME, Evidence.FIRST)


class Grade(StrEnum):
    """What shows that the result of an incident is bitwise what it would have been without it (`grades.py`)."""

    PROVEN = "proven"
    DRILLED = "drilled"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class DrillResult:
    """One drill that has come to its end."""

    number: int
    rank: int
    worker: str  # the spare
    verdict: DrillVerdict
    step: int  # of the job, at which it was
    detail: str
    at: float  # unix time
    compared: int = 0
    collectives: int = 0
    left_out: int = 0
    bytes_moved: int = 0
    pause: float = 0.0
    changing: frozenset[tuple[str, str]] = frozenset()  # unregistered state known to change: where and name
    since: int = -1  # the generation in which the rank's worker came as a newcomer; -1: it has had the rank from the start


@dataclass(frozen=True)
class Span:
    """One measured phase of an incident. `start` is in seconds after the fault; `seconds` is its length."""

    phase: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Interruption:
    """One rank's part in an incident."""

    rank: int
    cause: LossCause
    detail: str
    old_worker: str
    new_worker: str = ""


@dataclass(frozen=True)
class AwaitedDrills:
    """The drills that an unproven incident lacks."""

    ranks: tuple[int, ...]  # of which each needs one, of itself or of its role
    judged: tuple[int, ...]  # all ranks that the incident concerns: a drill of one that fails counts, too
    held: int  # a drill that passes counts only of a worker that had its rank in this generation: no later than what was lost
    after: int  # the number of the last drill before the end of the incident
    changing: frozenset[tuple[str, str]]  # as of `DrillResult`, at that time: each drill has to cover it
    passed: tuple[str, ...] = ()  # those that have passed since, for a person


@dataclass(frozen=True)
class Incident:
    """One interruption from the fault to the next step that every rank committed. Times: unix seconds and durations in seconds."""

    number: int
    planned: bool
    fault_at: float
    transaction: int  # the one that was redone, or the next one after a roll-forward
    step: int  # last committed step when the fault happened
    ranks: tuple[Interruption, ...]
    decision: str = ""  # "redo", "roll forward", "boundary" (planned), "skip" (a section)
    spans: tuple[Span, ...] = ()
    bytes_moved: int = 0
    digests_verified: int = 0
    steps_lost: int = 0
    notes: tuple[str, ...] = ()
    disputed: bool = False  # replicas differed, and nobody could tell who was right
    proven_by: tuple[int, ...] = ()  # survivors whose redo is, bit by bit, what they had come to before the loss
    collectives: tuple[int, int] = (0, 0)  # of the redo, on all ranks: into how many the same was put as before, and how many there were
    compared: tuple[int, int] = (0, 0)  # the same in bytes
    uncovered: tuple[str, ...] = ()  # names, the first few of each rank: the script changes them, and they are not carried over
    without_copies: float = 0.0  # seconds from the fault until the buddies of every rank had its copy again; 0: not known
    grade: Grade | None = None  # None: it is open, or its workers are of an earlier version
    why: str = ""  # it has that grade
    awaits: AwaitedDrills | None = None  # what is lacking for a better one
    raised: bool = False  # it was unproven when it ended, and drills have raised its grade
    seconds: float = field(default=-1.0)  # fault to next commit by every rank; -1 while open

    @property
    def cause(self) -> str:
        """Return that of the first loss; if nobody was lost, `section`, `corrupt` or `communication`."""
        if self.ranks:
            return str(self.ranks[0].cause)
        return "section" if self.decision == "skip" else "corrupt" if self.disputed else "communication"

"""What the machine remembers: nodes, workers, who holds which rank, and the recovery or migration under way.

`JobState` is plain data with a few questions on it. Everything that changes it lives in the modules that the table in
`machine.py` names. Two machines that handled the same events have equal states: this is what replaying the journal
relies on.

A job may have tens of thousands of ranks, and each of them speaks several times in every incident. What is asked for every such event
must therefore not look at all ranks. Four small indexes serve that (`Node.workers`, `JobState.unassigned`, `unverified`, `ranks_ever_lost`);
they change in `enlist` and `set_worker_state` and nowhere else. Questions of the kind "have all of them ...?" go through `all_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from understudy.core.commands import Abort, Assign, Command, EndJob, GiveBackNode, Pause, Prepare, Recover, SetTimer, Tell
from understudy.core.commit import Decision
from understudy.core.events import Event, Observed, PhaseDone, Quiesced, RankGroup, StateListed
from understudy.core.incident import OpenIncident
from understudy.core.mismatch import Crashes
from understudy.core.model import DrillResult, Incident, JobSpec, LossCause, Timeouts
from understudy.core.transitions import JOB, WORKER, Phase, RefusalReason, WorkerState
from understudy.messages import moves


@dataclass(frozen=True)
class Taint:
    source: str  # who says so: a detector, an operator
    reason: str
    part: str = ""  # of the node; "": the node itself
    until: float = 0.0  # unix time at which it ends; 0: when somebody says so
    leave: bool = False  # ranks are to leave the node
    deadline: float = 0.0  # of a drain: unix time by which they should have; 0: none
    lose: bool = False  # of a drain: what is there at its deadline is given up, and taken over elsewhere
    done: bool = False  # of a drain: nothing of the job is there any more
    device: str = ""  # of the node, if it is a device that ranks compute on: then it speaks of no other rank there
    by: str = ""  # whose right it was set with: `BY_JOB`, `BY_SERVICE`; "": Understudy set it itself, or an earlier version did

    def concerns_all(self, *, ended: bool) -> bool:
        """Whether it counts for all jobs of a service. `ended`: the job that knows it has, so that no check of it comes to an end any more.
        What an earlier version has set because of a detector counts for the job alone, as it does now.
        """
        if self.by:
            return self.by == BY_SERVICE
        return self.source in OURS and not (ended and self.source == CHECK[0])


OPERATOR = "operator"  # source of what a person says
CORRUPT = "corrupt"  # ... of what is said of a node whose rank held something else than its replicas
DEVICE = "device-error"  # ... of a device that a rank's exception speaks of, or of a node with several of these
DRAIN = ("drain", "")  # source and part of the taint of a node that is emptied, because a person says so
CHECK = ("check", "")  # ... of one that is to pass its check before it is trusted again
BY_JOB = "job"  # of somebody who may speak for this job: it concerns no other
BY_SERVICE = "service"  # of somebody who may speak for all jobs: only they take it back
MOVES = 2  # attempts to move a rank from a node

OURS = frozenset({OPERATOR, CORRUPT, DEVICE, DRAIN[0], CHECK[0]})  # sources that no detector can be: what they say counts for more


@dataclass(frozen=True)
class FailedDevice:
    """What is remembered of a `DeviceFailed`."""

    worker: str
    node: str
    device: str  # empty: not known, and then every worker counts as a device of its own
    local_rank: int
    rank: int
    transaction: int
    error: str

    def is_device_of(self, other: FailedDevice) -> bool:
        """Whether both speak of one device."""
        same = self.device == other.device if self.device and other.device else self.worker == other.worker
        return self.node == other.node and same


@dataclass
class Node:
    name: str
    address: str
    rank: int
    spares: int  # idle workers wanted here
    domain: str  # nodes of one failure domain are likely to fail together
    room: int = 0  # spares that its agent has asked for when it joined
    refused: int = 0  # spares not wanted for now, because the agent had no room
    failed_starts: int = 0  # workers in a row that were lost before they were warm
    lost: bool = False
    claim: int = -1  # the number of the claim that it serves, or has served; -1: it is the job's own
    gone: bool = False  # given back to the scheduler, and nothing was wrong with the node, as far as is known here
    given: dict[str, str] = field(default_factory=dict)  # labels of its place in the network, as its agent was given them
    found: dict[str, str] = field(default_factory=dict)  # ... as the scheduler has them
    taints: dict[tuple[str, str], Taint] = field(default_factory=dict)  # by source and part
    device_taints: dict[tuple[str, str], Taint] = field(default_factory=dict)  # the same, of single devices (`devices.py`)
    devices: dict[int, str] = field(default_factory=dict)  # by local rank: on which device a worker there computes, as far as it is known
    device_names: dict[str, str] = field(default_factory=dict)  # other names of these devices
    home_at: float = 0.0  # unix time from which on its ranks go home (`home.py`); -1: they do; 0: it was always trusted, or is not
    spares_for_return: int = 0  # of its spares, those that are there for this
    trusted_at: float = 0.0  # unix time at which a person last said that it is to be trusted; 0: nobody has
    workers: dict[str, Worker] = field(default_factory=dict)  # its workers that are not lost, oldest first

    @property
    def labels(self) -> dict[str, str]:
        """Where it is in the network, as its agent says, or else the scheduler (`topology.py`)."""
        return self.found | self.given

    @property
    def taint(self) -> str:
        """Why it is not trusted; "" if it is."""
        return "; ".join(dict.fromkeys(taint.reason for taint in self.taints.values()))

    def device_of(self, part: str) -> str:
        """The device that a part is, by whichever of its names, if ranks are known to compute on it; else ""."""
        device = self.device_names.get(part, part)
        return device if device and device in self.devices.values() else ""

    def tainted_places(self) -> set[int]:
        """Local ranks whose device is not trusted."""
        tainted = {taint.device for taint in self.device_taints.values()}
        return {local for local, device in self.devices.items() if device in tainted}

    def known(self, source: str, part: str) -> Taint | None:
        """What that source says of that part."""
        return self.taints.get((source, part)) or self.device_taints.get((source, part))

    @property
    def drain(self) -> Taint | None:
        return self.taints.get(DRAIN)

    def idle(self, *states: WorkerState) -> list[Worker]:
        """As `JobState.idle`, on this node."""
        return [worker for worker in self.workers.values() if worker.state in states]


@dataclass
class Worker:
    name: str
    node: str
    spare: bool  # started as a spare
    state: WorkerState = WorkerState.STARTING
    pid: int | None = None  # on its node; None: not known, as it has not started yet
    store: str = ""
    torch: str = ""
    rejoins: tuple[str, ...] = ()  # as in `WorkerWarm`
    rank: int = -1
    local_rank: int = -1
    device: str = ""  # of its node, on which it computes; empty: not known
    assign: Assign | None = None
    prepare: Prepare | None = None  # a spare that runs, or has run, the set-up of this rank: it can take no other
    ready: bool = False  # ... has run
    last_seen_generation: int = -1  # highest generation of an event from it
    recovered: int = -1  # generation of the last Recover sent to it
    committed: int = -1  # generation of its last Committed
    differed: int = -1  # generation of its last RedoDiffers
    step: int = 0  # last step that it said it has committed
    finished: bool = False  # its script has ended; that cannot be undone
    moves: int = 0  # how often its rank was to leave a claimed node for one of the job's own

    def comes_with(self, generation: int) -> bool:
        """Whether this newcomer was told to take part in that generation."""
        return generation >= 0 and generation == self.recovered


@dataclass
class Recovery:
    """One change of generation: from Abort or Pause to the first commit of every rank."""

    generation: int
    planned: bool
    reason: str
    store: str
    waiting: set[str]  # survivors that have not answered
    lost: list[tuple[int, LossCause]]  # since the last decision, to be counted at their transaction
    unexplained: bool = False  # communication broke, but nobody was lost
    answers: dict[str, Quiesced] = field(default_factory=dict)
    decision: Decision | None = None
    counted: bool = False
    sent: dict[str, Abort | Pause | Recover] = field(default_factory=dict)  # last word to each worker, for repeats


class Stage(StrEnum):
    """How far a planned migration is."""

    PREPARING = "preparing"  # the newcomer sets up while training goes on
    PAUSING = "pausing"  # everyone goes to the boundary
    MOVING = "moving"  # Recover was sent; the leaver is a donor


@dataclass
class Move:
    """Of one rank."""

    rank: int
    leaver: str
    newcomer: str
    reason: str
    local_rank: int = -1  # that the newcomer is to have; -1: the usual one
    ready: bool = False  # the newcomer has set up
    measured: list[PhaseDone] = field(default_factory=list)  # what the newcomer did before the incident begins


@dataclass
class Migration:
    """Ranks that move at one boundary, in one generation. A move that is over, or is called off, is none of it any more."""

    generation: int
    moves: list[Move]
    stage: Stage = Stage.PREPARING
    boundary: int = -1  # while it moves: the transaction before which everyone was told to go on

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(move.rank for move in self.moves)

    @property
    def leavers(self) -> set[str]:
        return {move.leaver for move in self.moves}

    @property
    def reason(self) -> str:
        return "; ".join(dict.fromkeys(move.reason for move in self.moves))

    def to(self, newcomer: str) -> Move | None:
        return next((move for move in self.moves if move.newcomer == newcomer), None)


@dataclass(frozen=True)
class Dispute:
    """Replicas differ, or a redo and what it redoes, and nobody can tell what is right: the job is held until somebody says so."""

    sides: tuple[tuple[int, ...], ...]  # the ranks in question, grouped by what they hold
    workers: tuple[str, ...]  # who held those ranks
    detail: str  # for a person: what was found, and what to do
    found: str  # the same without advice


@dataclass
class Claim:
    """A node that was asked for from the scheduler, and is not given back."""

    number: int
    rank: int
    reason: str
    avoid: tuple[str, ...]
    node: str = ""  # that serves it; empty: it has not joined


@dataclass
class DrillUnderWay:
    """A spare is to compute a step of `rank` beside its `holder`."""

    number: int
    rank: int
    worker: str  # the spare
    holder: str
    reason: str
    step: int = -1  # of the job when it was due; -1: somebody has asked for it
    running: bool = False  # both were told to begin
    changing: frozenset[tuple[str, str]] = frozenset()  # unregistered state known to change then


@dataclass
class JobState:
    spec: JobSpec
    timeouts: Timeouts
    phase: Phase = Phase.FORMING
    generation: int = 0
    highest_announced_generation: int = 0  # highest generation that any command has named
    store: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    places: dict[int, Node] = field(default_factory=dict)  # the same nodes by their rank
    workers: dict[str, Worker] = field(default_factory=dict)  # all that ever were
    unassigned: dict[str, Worker] = field(default_factory=dict)  # those that start or are warm, oldest first
    unverified: dict[str, Worker] = field(default_factory=dict)  # the newcomers
    ranks_ever_lost: set[int] = field(default_factory=set)  # ranks of which some worker was lost or released
    started: int = 0  # the number of the next worker; names are not used again
    ranks: dict[int, str] = field(default_factory=dict)  # who holds, or held last: nobody, or of every rank, in their order
    finished_then_lost: set[int] = field(default_factory=set)  # ranks whose worker finished and was lost afterwards
    all_committed: bool = False  # every rank has committed in the current generation
    begun: bool = False  # some rank has committed its first transaction
    restarts: int = 0
    recovery: Recovery | None = None
    migration: Migration | None = None
    dispute: Dispute | None = None
    drill: DrillUnderWay | None = None
    drilled: int = 0  # drills so far, the present one included
    drills: list[DrillResult] = field(default_factory=list)  # the last ones that are over
    drill_next: int = 0  # the next one that begins by itself is not due before this step, ...
    drill_after: float = 0.0  # ... nor before this unix time
    proofs_valid_after: int = 0  # the number of the last drill before what is registered has changed
    roles: tuple[int, ...] = ()  # alike for ranks that hold entries of the same names; empty: not known yet
    fingerprint: str = ""  # of these names
    groups: tuple[RankGroup, ...] = ()  # that the script has made, as rank 0 has told last
    together: dict[int, tuple[int, ...]] = field(default_factory=dict)  # rank -> all ranks with which it is kept together
    incident: OpenIncident | None = None
    incidents: list[Incident] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    listed: StateListed | None = None  # as rank 0 has told last
    losses: dict[tuple[int, int], int] = field(default_factory=dict)  # (rank, transaction) -> how often
    mismatches: dict[tuple[int, int], int] = field(default_factory=dict)  # the same for newcomers that did not verify
    unprepared: dict[int, int] = field(default_factory=dict)  # rank -> how many spares failed in its set-up
    unprepared_in_a_row: int = 0  # over all ranks
    failed_moves: dict[int, int] = field(default_factory=dict)  # rank -> how often it was to leave a tainted node, or to go home
    evidence: dict[tuple[str, ...], Observed] = field(default_factory=dict)  # what was seen last, by whom and of what: for people
    crashes: Crashes | None = None  # of survivors, since the last recovery
    failed_devices: list[FailedDevice] = field(default_factory=list)  # the last ones that were blamed
    breaks: dict[int, int] = field(default_factory=dict)  # transaction -> recoveries without a lost rank
    broken: str = ""  # the communication failure that waits for its explanation
    broken_at: float = 0.0
    claims: dict[int, Claim] = field(default_factory=dict)  # those that are not over, oldest first
    claimed: int = 0  # the number of the next one
    scheduler_said: str = ""  # last, of a claim that it could not fulfil or has ended
    timers: set[str] = field(default_factory=set)
    first_unmet: dict[str, int] = field(default_factory=dict, compare=False)  # where `all_of` looks first; no answer depends on it
    refused: dict[tuple[str, RefusalReason], int] = field(default_factory=dict, compare=False)  # what came, and meant nothing: how often
    ended: EndJob | None = None
    now: float = 0.0
    out: list[Command] = field(default_factory=list, compare=False)

    def hosts(self) -> list[Node]:
        """The nodes on which the ranks are started, in their order; others have spares only."""
        return [self.places[rank] for rank in range(self.spec.nodes) if rank in self.places]

    def complete(self) -> bool:
        """Whether the nodes of all ranks have joined."""
        return self.all_of("joined", self.spec.nodes, self.places.__contains__)

    def all_of(self, question: str, count: int, true: Callable[[int], bool]) -> bool:
        """Whether `true` holds for every number below `count`. The first for which it does not is asked first the next time, so that
        asking after every event, until the answer is yes, costs as much as asking each of them once or twice. A yes looks at all.
        """
        first = self.first_unmet.get(question, 0) % count
        for number in chain(range(first, count), range(first)):
            if not true(number):
                self.first_unmet[question] = number
                return False
        return True

    def enlist(self, worker: Worker) -> None:
        """A new worker, which starts."""
        self.workers[worker.name] = self.unassigned[worker.name] = self.nodes[worker.node].workers[worker.name] = worker

    def set_worker_state(self, worker: Worker, state: WorkerState) -> None:
        """The only way in which what a worker is to the job changes. One that takes a rank has its `rank` already."""
        if state not in WORKER[worker.state]:
            self._count(f"worker {worker.state} -> {state}", RefusalReason.TRANSITION)
            return
        worker.state = state
        if state not in (WorkerState.STARTING, WorkerState.WARM):
            self.unassigned.pop(worker.name, None)
        elif worker.name not in self.unassigned:  # a spare of a drill: in its old place again
            there = {*self.unassigned, worker.name}
            self.unassigned = {name: one for name, one in self.workers.items() if name in there}
        if state is WorkerState.NEWCOMER:
            self.unverified[worker.name] = worker
        else:
            self.unverified.pop(worker.name, None)
        if state in (WorkerState.LOST, WorkerState.RELEASED) and worker.rank >= 0:
            self.ranks_ever_lost.add(worker.rank)
        if state is WorkerState.LOST:
            self.nodes[worker.node].workers.pop(worker.name, None)

    def set_phase(self, phase: Phase) -> None:
        """The only way in which the phase of the job changes."""
        if phase not in JOB[self.phase]:
            self._count(f"job {self.phase} -> {phase}", RefusalReason.TRANSITION)
            return
        self.phase = phase

    def ignore(self, event: Event, why: RefusalReason) -> None:
        """It means nothing now, and nothing comes of it."""
        self._count(type(event).__name__, why)

    def _count(self, what: str, why: RefusalReason) -> None:
        self.refused[what, why] = self.refused.get((what, why), 0) + 1

    def emit(self, *commands: Command) -> None:
        self.out.extend(commands)

    def report(self, text: str) -> None:
        self.out.append(Tell(text))

    def end(self, exit_code: int, message: str) -> None:
        """The first end counts. What is claimed is given back."""
        if self.ended is None:
            self.emit(*(GiveBackNode(claim.number, claim.node) for claim in self.claims.values()))
            self.claims.clear()
            self.ended = EndJob(exit_code, message)
            self.set_phase(Phase.ENDED)
            self.out.append(self.ended)

    def timer(self, name: str, seconds: float) -> None:
        self.timers.add(name)
        self.emit(SetTimer(name, seconds))

    def cancel(self, *names: str) -> None:
        for name in names:
            if name in self.timers:
                self.timers.remove(name)
                self.emit(SetTimer(name, 0.0))

    def next_generation(self) -> int:
        self.highest_announced_generation += 1
        return self.highest_announced_generation

    def trusted(self, node: Node) -> bool:
        """Whether new ranks and spares may go there. A taint keeps nothing away from a job that has no other node; a drain does."""
        return not node.lost and node.drain is None and (not node.taint or all(other.lost or other.taint for other in self.nodes.values()))

    def holder(self, rank: int) -> Worker:
        return self.workers[self.ranks[rank]]

    def holds(self, worker: Worker) -> bool:
        """Whether it holds its rank, or held it last."""
        return self.ranks.get(worker.rank) == worker.name

    def members(self) -> list[Worker]:
        """Holders whose state is good, by rank. In a recovery these are the survivors."""
        holders = map(self.workers.__getitem__, self.ranks.values())
        return [worker for worker in holders if worker.state is WorkerState.MEMBER]

    def newcomers(self) -> list[Worker]:
        """Holders that are not verified, by rank."""
        return sorted(filter(self.holds, self.unverified.values()), key=lambda worker: worker.rank)

    def leavers(self) -> list[Worker]:
        """Those whose ranks move, and may come back to them: they are there, and their state is that of the boundary."""
        moving = self.migration is not None and self.migration.stage is Stage.MOVING
        return [self.workers[move.leaver] for move in self.migration.moves] if self.migration is not None and moving else []

    def vacant(self) -> list[int]:
        """Ranks that nobody holds and somebody must; not those that may come back to their leavers."""
        moves = {leaver.rank for leaver in self.leavers()}
        return [
            rank
            for rank in sorted(self.ranks_ever_lost - self.finished_then_lost - moves)
            if rank in self.ranks and self.holder(rank).state in (WorkerState.LOST, WorkerState.RELEASED)
        ]

    def idle(self, *states: WorkerState) -> list[Worker]:
        """Workers without a rank that are starting or warm, whichever of these is asked for, oldest first."""
        return [worker for worker in self.unassigned.values() if worker.state in states]

    def step(self) -> int:
        """The last step that every rank is known to have committed. Workers say so only at the edges of a recovery."""
        return min((worker.step for worker in self.members()), default=0)

    def unsettled(self) -> str:
        """Why this is not plain training, in which a rank can move or be drilled; empty if it is. (When all have committed in this
        generation the last incident is over, and the next one begins with another generation.)
        """
        if self.phase is Phase.ENDED:
            return moves.JOB_OVER()
        if self.migration is not None:
            return moves.ALREADY_MIGRATING(rank=self.migration.ranks[0])
        if not self.all_committed or self.broken:
            return moves.NOT_SETTLED()
        if self.finished_then_lost or any(worker.finished for worker in self.members()):
            return moves.ABOUT_TO_FINISH()
        return ""

    def all_finished(self) -> bool:
        return bool(self.ranks) and self.all_of("finished", len(self.ranks), self._has_finished)

    def _has_finished(self, rank: int) -> bool:
        worker = self.holder(rank)
        return worker.finished and (rank in self.finished_then_lost or worker.state is WorkerState.MEMBER)

    def everyone_committed(self) -> bool:
        """Whether every rank has committed in the present generation."""
        return self.all_of("committed", len(self.ranks), self._has_committed)

    def _has_committed(self, rank: int) -> bool:
        worker = self.holder(rank)
        done = worker.finished or worker.committed == self.generation
        return done and (rank in self.finished_then_lost or worker.state is WorkerState.MEMBER)

    def describe(self, worker: Worker) -> str:
        where = f"worker {worker.name} on node {worker.node}"
        return f"rank {worker.rank} ({where})" if worker.rank >= 0 else where

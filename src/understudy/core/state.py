"""The state of the machine: nodes, workers, the assignment of ranks, and the recovery or migration under way.

`JobState` is plain data with a few queries on it. It is changed only by the modules that the table in `machine.py` names. Two machines that
handled the same events have equal states: replaying the journal depends on this.

A job may have tens of thousands of ranks, and each of them sends several events in every incident. So code that runs for every such event
must not iterate over all ranks. Four small indexes avoid this (`Node.workers`, `JobState.unassigned`, `unverified`, `ranks_ever_lost`);
only `enlist` and `set_worker_state` change them. Questions of the kind "have all of them ...?" use `all_of`.
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
from understudy.messages import moves, script


@dataclass(frozen=True)
class Taint:
    source: str  # a detector or an operator
    reason: str
    part: str = ""  # of the node; "": the node as a whole
    until: float = 0.0  # unix time at which it ends; 0: when it is lifted
    leave: bool = False  # ranks must leave the node
    deadline: float = 0.0  # of a drain: unix time by which they should have left; 0: none
    lose: bool = False  # of a drain: ranks and spares that are there at its deadline are given up, and recovered elsewhere
    done: bool = False  # of a drain: nothing of the job is there any more
    device: str = ""  # of the node, if it is a device that ranks compute on: then other ranks there are not concerned
    by: str = ""  # the authority with which it was set: `BY_JOB`, `BY_SERVICE`; "": set by Understudy, or by an earlier version

    def concerns_all(self, *, ended: bool) -> bool:
        """Return whether the taint counts for all jobs of a service.

        `ended`: the job that has set it has ended, so that none of its checks will finish. A taint that an earlier version has set because
        of a detector counts for that job alone.
        """
        if self.by:
            return self.by == BY_SERVICE
        return self.source in OURS and not (ended and self.source == CHECK[0])


OPERATOR = "operator"  # source of an operator's taints
CORRUPT = "corrupt"  # ... of a taint of a node whose rank had other state than its replicas
DEVICE = "device-error"  # ... of a taint of a device that a rank's exception names, or of a node with several of these
DRAIN = ("drain", "")  # source and part of the taint of a node that an operator drains
CHECK = ("check", "")  # ... of a node that must pass its check before it is trusted again
BY_JOB = "job"  # set with the authority over this job: it concerns no other
BY_SERVICE = "service"  # set with the authority over all jobs: only this authority may lift it
MOVES = 2  # attempts to move a rank from a node

OURS = frozenset({OPERATOR, CORRUPT, DEVICE, DRAIN[0], CHECK[0]})  # sources that no detector can have: their taints have more weight


@dataclass(frozen=True)
class FailedDevice:
    """A `DeviceFailed` that is remembered."""

    worker: str
    node: str
    device: str  # empty: unknown; then every worker counts as a device
    local_rank: int
    rank: int
    transaction: int
    error: str

    def is_device_of(self, other: FailedDevice) -> bool:
        """Return whether both concern one device."""
        same = self.device == other.device if self.device and other.device else self.worker == other.worker
        return self.node == other.node and same


@dataclass
class Node:
    name: str
    address: str
    rank: int
    spares: int  # idle workers wanted here
    domain: str  # nodes of one failure domain are likely to fail together
    room: int = 0  # spares that its agent asked for when it joined
    refused: int = 0  # spares not wanted for now, because the agent had no room
    failed_starts: int = 0  # workers in a row that were lost before they were warm
    lost: bool = False
    claim: int = -1  # the number of the claim that it serves or has served; -1: one of the job's own nodes
    gone: bool = False  # given back to the scheduler without a known fault
    given: dict[str, str] = field(default_factory=dict)  # labels of its place in the network, from its agent
    found: dict[str, str] = field(default_factory=dict)  # ... from the scheduler
    taints: dict[tuple[str, str], Taint] = field(default_factory=dict)  # by source and part
    device_taints: dict[tuple[str, str], Taint] = field(default_factory=dict)  # the same, of single devices (`devices.py`)
    devices: dict[int, str] = field(default_factory=dict)  # by local rank: the device on which a worker there computes, as far as known
    device_names: dict[str, str] = field(default_factory=dict)  # other names of these devices
    home_at: float = 0.0  # unix time at which its ranks return (`home.py`); -1: they are; 0: always trusted, or not trusted
    spares_for_return: int = 0  # its spares that were started for returning ranks
    trusted_at: float = 0.0  # unix time at which an operator last marked it as trusted; 0: never
    workers: dict[str, Worker] = field(default_factory=dict)  # its workers that are not lost, oldest first

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its place in the network, from its agent, or else from the scheduler (`topology.py`)."""
        return self.found | self.given

    @property
    def taint(self) -> str:
        """The reason why it is not trusted; "" if it is."""
        return "; ".join(dict.fromkeys(taint.reason for taint in self.taints.values()))

    def device_of(self, part: str) -> str:
        """Return the device that a part is, under any of its names, if ranks are known to compute on it; else ""."""
        device = self.device_names.get(part, part)
        return device if device and device in self.devices.values() else ""

    def tainted_places(self) -> set[int]:
        """Return the local ranks whose device is not trusted."""
        tainted = {taint.device for taint in self.device_taints.values()}
        return {local for local, device in self.devices.items() if device in tainted}

    def known(self, source: str, part: str) -> Taint | None:
        """Return the taint of that source on that part."""
        return self.taints.get((source, part)) or self.device_taints.get((source, part))

    @property
    def drain(self) -> Taint | None:
        return self.taints.get(DRAIN)

    def idle(self, *states: WorkerState) -> list[Worker]:
        """Return workers as `JobState.idle`, on this node."""
        return [worker for worker in self.workers.values() if worker.state in states]


@dataclass
class Worker:
    name: str
    node: str
    spare: bool  # started as a spare
    state: WorkerState = WorkerState.STARTING
    pid: int | None = None  # on its node; None: unknown, because it has not started yet
    store: str = ""
    torch: str = ""
    rejoins: tuple[str, ...] = ()  # as in `WorkerWarm`
    rank: int = -1
    local_rank: int = -1
    device: str = ""  # the device of its node on which it computes; empty: unknown
    assign: Assign | None = None
    prepare: Prepare | None = None  # a spare that runs, or has run, the set-up of this rank: it can take no other
    ready: bool = False  # ... has run
    last_seen_generation: int = -1  # highest generation of an event from it
    recovered: int = -1  # generation of the last Recover sent to it
    committed: int = -1  # generation of its last Committed
    differed: int = -1  # generation of its last RedoDiffers
    step: int = 0  # the last step that it has reported as committed
    finished: bool = False  # its script has ended; that cannot be undone
    moves: int = 0  # how often its rank was to leave a claimed node for one of the job's own

    def comes_with(self, generation: int) -> bool:
        """Return whether this newcomer was sent the Recover of that generation."""
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
    unexplained: bool = False  # communication broke, but no rank was lost
    answers: dict[str, Quiesced] = field(default_factory=dict)
    decision: Decision | None = None
    counted: bool = False
    sent: dict[str, Abort | Pause | Recover] = field(default_factory=dict)  # last message to each worker, for repeats


class Stage(StrEnum):
    """The progress of a planned migration."""

    PREPARING = "preparing"  # the newcomer sets up while training goes on
    PAUSING = "pausing"  # all workers go to the boundary
    MOVING = "moving"  # Recover was sent; the leaver is a donor


@dataclass
class Move:
    """The move of one rank."""

    rank: int
    leaver: str
    newcomer: str
    reason: str
    local_rank: int = -1  # of the newcomer; -1: the usual one
    ready: bool = False  # the newcomer has set up
    measured: list[PhaseDone] = field(default_factory=list)  # phases of the newcomer before the incident begins


@dataclass
class Migration:
    """The ranks that move at one boundary, in one generation. A move that has ended or was called off is removed."""

    generation: int
    moves: list[Move]
    stage: Stage = Stage.PREPARING
    boundary: int = -1  # in the stage MOVING: the transaction at which all workers were told to go on

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
    """Replicas differ, or a redo and the first attempt, and it cannot be decided which is right: the job is paused until an operator
    decides.
    """

    sides: tuple[tuple[int, ...], ...]  # the ranks in question, grouped by their content
    workers: tuple[str, ...]  # the workers that held those ranks
    detail: str  # for the operator: the finding and the remedy
    found: str  # the finding alone


@dataclass
class Claim:
    """A node that was claimed from the scheduler and is not given back."""

    number: int
    rank: int
    reason: str
    avoid: tuple[str, ...]
    node: str = ""  # the node that serves it; empty: none has joined


@dataclass
class DrillUnderWay:
    """A spare that is to compute a step of `rank` in parallel with its `holder`."""

    number: int
    rank: int
    worker: str  # the spare
    holder: str
    reason: str
    step: int = -1  # the job's step at which it was due; -1: it was asked for
    running: bool = False  # both were sent Drill
    changing: frozenset[tuple[str, str]] = frozenset()  # unregistered state known to change at that time


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
    workers: dict[str, Worker] = field(default_factory=dict)  # all workers, including lost ones
    unassigned: dict[str, Worker] = field(default_factory=dict)  # those that are starting or warm, oldest first
    unverified: dict[str, Worker] = field(default_factory=dict)  # the newcomers
    ranks_ever_lost: set[int] = field(default_factory=set)  # ranks whose worker was lost or released at some time
    started: int = 0  # the number of the next worker; names are not reused
    ranks: dict[int, str] = field(default_factory=dict)  # the worker that holds each rank, or held it last; empty, or all ranks in order
    finished_then_lost: set[int] = field(default_factory=set)  # ranks whose worker finished and was lost afterwards
    all_committed: bool = False  # every rank has committed in the current generation
    begun: bool = False  # some rank has committed its first transaction
    restarts: int = 0
    recovery: Recovery | None = None
    migration: Migration | None = None
    dispute: Dispute | None = None
    drill: DrillUnderWay | None = None
    drilled: int = 0  # number of drills so far, including the present one
    drills: list[DrillResult] = field(default_factory=list)  # the latest finished ones
    drill_next: int = 0  # the next automatic drill is not due before this step, ...
    drill_after: float = 0.0  # ... nor before this unix time
    proofs_valid_after: int = 0  # the number of the last drill before the registered state changed
    roles: tuple[int, ...] = ()  # equal for ranks that hold entries of the same names; empty: unknown
    fingerprint: str = ""  # of these names
    groups: tuple[RankGroup, ...] = ()  # made by the script, as last listed by rank 0
    together: dict[int, tuple[int, ...]] = field(default_factory=dict)  # rank -> all ranks with which it is kept together
    incident: OpenIncident | None = None
    incidents: list[Incident] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    listed: StateListed | None = None  # as last listed by rank 0
    losses: dict[tuple[int, int], int] = field(default_factory=dict)  # (rank, transaction) -> how often
    mismatches: dict[tuple[int, int], int] = field(default_factory=dict)  # the same for newcomers that did not verify
    unprepared: dict[int, int] = field(default_factory=dict)  # rank -> how many spares failed in its set-up
    unprepared_in_a_row: int = 0  # over all ranks
    failed_moves: dict[int, int] = field(default_factory=dict)  # rank -> how often it was to leave a tainted node, or to return
    evidence: dict[tuple[str, ...], Observed] = field(default_factory=dict)  # the latest evidence by detector and subject; only shown
    crashes: Crashes | None = None  # of survivors, since the last recovery
    failed_devices: list[FailedDevice] = field(default_factory=list)  # the latest ones that were blamed on a device
    breaks: dict[int, int] = field(default_factory=dict)  # transaction -> recoveries without a lost rank
    broken: str = ""  # the communication failure that is not explained yet
    broken_at: float = 0.0
    claims: dict[int, Claim] = field(default_factory=dict)  # open claims, oldest first
    claimed: int = 0  # the number of the next one
    scheduler_message: str = ""  # the latest report about a claim that it could not fulfil or has ended
    timers: set[str] = field(default_factory=set)
    first_unmet: dict[str, int] = field(default_factory=dict, compare=False)  # where `all_of` starts; does not affect results
    refused: dict[tuple[str, RefusalReason], int] = field(default_factory=dict, compare=False)  # number of events that were ignored
    ended: EndJob | None = None
    now: float = 0.0
    out: list[Command] = field(default_factory=list, compare=False)

    def hosts(self) -> list[Node]:
        """Return the nodes on which the ranks are started, in their order; others have spares only."""
        return [self.places[rank] for rank in range(self.spec.nodes) if rank in self.places]

    def complete(self) -> bool:
        """Return whether the nodes of all ranks have joined."""
        return self.all_of("joined", self.spec.nodes, self.places.__contains__)

    @property
    def protected(self) -> bool:
        """Whether no rank has reported that the script makes its own process group."""
        return not any(script.OWN_PROCESS_GROUP.code in notice for notice in self.notices)

    def all_of(self, question: str, count: int, true: Callable[[int], bool]) -> bool:
        """Return whether `true` holds for every number below `count`.

        The first number for which it does not hold is tried first the next time. So calling this after every event until it returns True
        costs as much as trying each number once or twice. A result of True tries all numbers.
        """
        first = self.first_unmet.get(question, 0) % count
        for number in chain(range(first, count), range(first)):
            if not true(number):
                self.first_unmet[question] = number
                return False
        return True

    def enlist(self, worker: Worker) -> None:
        """Add a new worker, which is starting."""
        self.workers[worker.name] = self.unassigned[worker.name] = self.nodes[worker.node].workers[worker.name] = worker

    def set_worker_state(self, worker: Worker, state: WorkerState) -> None:
        """Change a worker's state; nothing else may. A worker that takes a rank must have its `rank` already."""
        if state not in WORKER[worker.state]:
            self._count(f"worker {worker.state} -> {state}", RefusalReason.TRANSITION)
            return
        worker.state = state
        if state not in (WorkerState.STARTING, WorkerState.WARM):
            self.unassigned.pop(worker.name, None)
        elif worker.name not in self.unassigned:  # the spare of a drill returns to its previous position
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
        """Change the phase of the job; nothing else may."""
        if phase not in JOB[self.phase]:
            self._count(f"job {self.phase} -> {phase}", RefusalReason.TRANSITION)
            return
        self.phase = phase

    def ignore(self, event: Event, why: RefusalReason) -> None:
        """Ignore an event that has no meaning now, and count it."""
        self._count(type(event).__name__, why)

    def _count(self, what: str, why: RefusalReason) -> None:
        self.refused[what, why] = self.refused.get((what, why), 0) + 1

    def emit(self, *commands: Command) -> None:
        self.out.extend(commands)

    def report(self, text: str) -> None:
        self.out.append(Tell(text))

    def end(self, exit_code: int, message: str) -> None:
        """End the job, and give all claims back. Only the first call counts."""
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
        """Return whether new ranks and spares may go to the node. Taints have no effect if all nodes have one; a drain always has."""
        return not node.lost and node.drain is None and (not node.taint or all(other.lost or other.taint for other in self.nodes.values()))

    def holder(self, rank: int) -> Worker:
        return self.workers[self.ranks[rank]]

    def holds(self, worker: Worker) -> bool:
        """Return whether the worker holds its rank, or held it last."""
        return self.ranks.get(worker.rank) == worker.name

    def members(self) -> list[Worker]:
        """Return the holders whose state is good, by rank. In a recovery these are the survivors."""
        holders = map(self.workers.__getitem__, self.ranks.values())
        return [worker for worker in holders if worker.state is WorkerState.MEMBER]

    def newcomers(self) -> list[Worker]:
        """Return the holders that are not verified, by rank."""
        return sorted(filter(self.holds, self.unverified.values()), key=lambda worker: worker.rank)

    def leavers(self) -> list[Worker]:
        """Return the old workers of moving ranks, which may get them back: they are alive, with the state of the boundary."""
        moving = self.migration is not None and self.migration.stage is Stage.MOVING
        return [self.workers[move.leaver] for move in self.migration.moves] if self.migration is not None and moving else []

    def vacant(self) -> list[int]:
        """Return the ranks without a holder that need one; not those that may return to their leavers."""
        moves = {leaver.rank for leaver in self.leavers()}
        return [
            rank
            for rank in sorted(self.ranks_ever_lost - self.finished_then_lost - moves)
            if rank in self.ranks and self.holder(rank).state in (WorkerState.LOST, WorkerState.RELEASED)
        ]

    def idle(self, *states: WorkerState) -> list[Worker]:
        """Return the workers without a rank in these states (starting or warm), oldest first."""
        return [worker for worker in self.unassigned.values() if worker.state in states]

    def step(self) -> int:
        """Return the last step that every rank is known to have committed. Workers report it only at the start and end of a recovery."""
        return min((worker.step for worker in self.members()), default=0)

    def unsettled(self) -> str:
        """Return why this is not plain training, in which a rank can move or be drilled; empty if it is.

        When all ranks have committed in this generation, the last incident is over, and the next one begins with another generation.
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
        """Return whether every rank has committed in the present generation."""
        return self.all_of("committed", len(self.ranks), self._has_committed)

    def _has_committed(self, rank: int) -> bool:
        worker = self.holder(rank)
        done = worker.finished or worker.committed == self.generation
        return done and (rank in self.finished_then_lost or worker.state is WorkerState.MEMBER)

    def describe(self, worker: Worker) -> str:
        where = f"worker {worker.name} on node {worker.node}"
        return f"rank {worker.rank} ({where})" if worker.rank >= 0 else where

"""The events of a job: the inputs of `Machine.handle`. All of them are plain data, and all of them are journalled.

`docs/reference/events.md` is made from this file (`scripts/reference/journal_events.py`): the docstrings, and the comment of each field.
Fields that many events have, such as `worker`, are described once, in that script.

An event with a `worker` comes from this worker, through its agent, unless its docstring names another source. `generation` fences: the
machine ignores an event of a generation that is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.model import BuddyCopyRef, DrillVerdict, Evidence, Grade, LossCause, Position


@dataclass(frozen=True)
class NodeJoined:
    """The agent of a node has connected."""

    node: str
    address: str  # where other nodes reach the workers of this node
    node_rank: int  # number of the node
    domain: str = ""  # failure domain; empty: the node is its own failure domain
    spares: int = -1  # number of spares wanted on this node; -1: its share of all spares of the job
    workers: tuple[str, ...] | None = None  # workers that were started there, by this agent or an earlier one; null: not reported
    labels: tuple[tuple[str, str], ...] = ()  # labels of its location (`--label`), as pairs of key and value
    claim: int = -1  # number of the claim (see `ClaimEnded`) by which the node was requested; negative: none
    instance: str = ""  # identity of the run directory and its host: a restarted agent has the same; empty: an agent of an earlier version
    ranks: int = 0  # `--nproc-per-node` of the agent's command; 0: not reported


@dataclass(frozen=True)
class ClaimEnded:
    """The scheduler cannot provide a claimed node, or has taken it away again. From the orchestrator.

    A claim is a request to the scheduler for one node with floating spares.
    """

    claim: int  # number of the claim
    detail: str


@dataclass(frozen=True)
class LostNode:
    """A node of `NodesLost`."""

    node: str
    detail: str
    happened: float = 0.0  # unix time of its last message, in seconds; 0: now


@dataclass(frozen=True)
class NodesLost:
    """Nodes are lost for good. From the orchestrator. Nodes that are lost together, such as a rack, are in one event."""

    nodes: tuple[LostNode, ...]  # each with `node`, `detail`, and `happened`: unix time of its last message


@dataclass(frozen=True)
class WorkerStarted:
    """A worker was started. From the agent."""

    worker: str
    node: str
    pid: int | None  # process id on its node; null: not known


@dataclass(frozen=True)
class StartRefused:
    """A worker could not be started, for lack of memory for example. From the agent."""

    worker: str
    node: str
    detail: str


@dataclass(frozen=True)
class WorkerWarm:
    """A worker has imported torch and the packages of the script, and can take a rank."""

    worker: str
    store: str  # host:port of its rendezvous store
    rank: int = -1  # -1; if the event is sent again after a reconnection: the rank that the worker has been assigned since
    torch: str = ""  # its version of torch
    rejoins: tuple[str, ...] = ()  # backends whose groups it reconnects in place; in others a new communicator replaces the old one


@dataclass(frozen=True)
class WorkerLost:
    """A worker is lost. From the agent, if its process ended, or from the detector of hangs."""

    worker: str
    cause: LossCause
    detail: str
    happened: float  # best estimate of the unix time of the fault, in seconds


@dataclass(frozen=True)
class CommunicationBroken:
    """A collective failed on a worker although no abort was announced. This is evidence, not yet a loss."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Quiesced:
    """A worker no longer uses anything of the old generation, and waits for the next one."""

    worker: str
    generation: int
    position: Position  # its transaction, and whether it has voted
    copies: tuple[BuddyCopyRef, ...]  # buddy copies that it holds: rank and transaction of each
    step: int


@dataclass(frozen=True)
class NewcomerReady:
    """A newcomer has run the script up to the current transaction of the job and can join. Planned migrations wait for this."""

    worker: str
    generation: int


@dataclass(frozen=True)
class Prepared:
    """A spare has run the setup of the script as a rank, before a loss. It can take this rank and no other."""

    worker: str
    rank: int


@dataclass(frozen=True)
class Drilled:
    """The spare of a drill has computed the same step as a rank."""

    worker: str
    drill: int  # number of the drill
    rank: int
    verdict: DrillVerdict
    step: int  # steps that the rank had committed before the drilled one
    detail: str  # the differences
    compared: int = 0  # number of tensors, values, streams and collectives that were compared
    collectives: int = 0  # number of collectives among them
    left_out: int = 0  # number of collectives that were not compared, because their results were too large to send
    bytes_moved: int = 0  # bytes of state and results of collectives
    pause: float = 0.0  # seconds that the rank spent on the drill
    changing: tuple[tuple[str, str], ...] = ()  # unregistered state that is known to change: place and name, as in `StateListed`


@dataclass(frozen=True)
class DrillBroken:
    """The rank of a drill continued without the spare. The results were not compared, so the drill's verdict is `broken`."""

    worker: str
    drill: int  # number of the drill
    detail: str


@dataclass(frozen=True)
class PhaseDone:
    """A phase of a recovery is over on a worker."""

    worker: str
    generation: int
    phase: str  # `setup`, `attach`, `transfer`, `verify` or `redo`
    started: float  # unix time of its start, in seconds
    seconds: float  # its duration
    bytes_moved: int = 0  # bytes that were transferred


@dataclass(frozen=True)
class Verified:
    """The state of a newcomer agrees with that of its donors."""

    worker: str
    generation: int
    digests: int  # digests that were compared
    notes: tuple[str, ...] = ()  # what could not be restored, by name


@dataclass(frozen=True)
class VerifyFailed:
    """The state of a newcomer does not agree with that of its donors. The job does not continue with it."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Uncovered:
    """A survivor found that no replica and no copy has the state of a lost rank. The job ends."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class ReplicasDiffer:
    """Ranks that must have the same state do not. No rank continues in this generation."""

    worker: str
    generation: int
    odd: tuple[int, ...]  # ranks that differ from most of their replicas; empty: there is no majority
    sides: tuple[tuple[int, ...], ...]  # if `odd` is empty: the ranks in question, grouped by their state
    detail: str


@dataclass(frozen=True)
class RedoDiffers:
    """The redo of a step differs from the interrupted attempt on a survivor. No rank continues in this generation."""

    worker: str
    generation: int
    transaction: int
    step: int
    detail: str  # the differences, by name
    partly: bool = False  # true: the survivor had not reached its vote, so only inputs of collectives were compared
    sure: bool = False  # used only if `partly` is true. true: the difference matters, because
    # every step calls this collective; false: the redo may only have taken another branch


@dataclass(frozen=True)
class SectionFailed:
    """A `job.section(on_error="report")` raised on a worker. All ranks return to the beginning of the section and skip it."""

    worker: str
    generation: int
    detail: str  # the section and its error


@dataclass(frozen=True)
class Committed:
    """A worker made its first commit in this generation. Later commits are not recorded as events: `step` in status shows them.

    The redo of a newcomer is compared with the digests that the lost worker had sent to its buddies.
    """

    worker: str
    generation: int
    transaction: int
    step: int
    compared: int = -1  # digests of the redo that match the attempt before it; 0: nothing was compared; -1: not reported
    collectives: tuple[int, int] = (0, 0)  # of the redo: how many had the same inputs as before, and how many there were
    size: tuple[int, int] = (0, 0)  # the same two numbers, in bytes
    evidence: Evidence = Evidence.UNSAID  # `first` (nothing was redone), `same`, `different`, `nothing` (to compare); empty: not reported
    uncovered: tuple[str, ...] = ()  # state that the script changes and that is not carried over, the first few by name
    copied: float = 0.0  # unix time at which the buddies of the rank had its copy again, in seconds; 0: no copy


@dataclass(frozen=True)
class ScriptFailed:
    """The script raised an exception, or the runtime refused it. The job ends."""

    worker: str
    rank: int
    step: int
    summary: str  # type and text of the exception
    traceback: str  # the traceback, as text
    exit_code: int = 1  # exit code of the job
    ends: bool = False  # always false in the journal. In the message to the agent, true
    # means that threads and exit handlers of the script still run


@dataclass(frozen=True)
class UsesDevice:
    """The device on which a worker computes is known. Sent once."""

    worker: str
    device: str  # the device, as the detectors of the node name it, such as gpu1
    names: tuple[str, ...] = ()  # its other names: UUID, PCI address


@dataclass(frozen=True)
class DeviceFailed:
    """An exception on a worker shows that its device has failed. The worker leaves at once.

    Everything that it has computed since its last vote is discarded. The orchestrator decides whether the device or the script is at fault.
    """

    worker: str
    rank: int  # the rank that it holds or prepares for; -1: none
    transaction: int  # transaction in which the exception was raised; -1: in the setup
    step: int
    error: str  # name of the error, the same for the same fault on any device
    certain: bool  # the hardware or its driver has failed; false: kernels of the script may be the cause
    blamed: bool  # true: the device or the script caused the error; false: it follows from the loss of another worker
    device: str  # the device, as the detectors of the node name it, such as gpu1; empty: not known
    happened: float
    summary: str  # type and text of the exception
    traceback: str  # the traceback, as text
    computes: bool = True  # true: the rank computes on the device; false: all ranks of the node share it, such as a disk


@dataclass(frozen=True)
class Finished:
    """The script has ended on a worker. The worker stays, as a donor, until every rank has finished."""

    worker: str
    generation: int
    step: int = 0


@dataclass(frozen=True)
class Notice:
    """A message for the user: about state that no other rank has, a broken rule, or a value that a newcomer would not receive. It is
    shown once.
    """

    worker: str
    rank: int
    text: str  # the message, with its code


@dataclass(frozen=True)
class IncidentGraded:
    """A closed incident got its grade, at its end or by a later drill. From the orchestrator. No decision depends on it."""

    incident: int  # number of the incident
    grade: Grade
    detail: str  # the reason for the grade


@dataclass(frozen=True)
class MigrationAsked:
    """A request to move a healthy rank to a spare at a step boundary. From the HTTP interface."""

    rank: int
    reason: str
    to: str = ""  # target node; empty: the node of the best spare
    device: str = ""  # device of that node; empty: any


@dataclass(frozen=True)
class Registered:
    """All ranks have compared what they register. From rank 0."""

    worker: str
    generation: int
    step: int
    roles: tuple[int, ...]  # for each rank, the number of its role: the same for ranks with the same names and the same collectives
    fingerprint: str  # digest of the names, of the ranks that have them, and of frameworks' layouts, such as DDP's buckets


@dataclass(frozen=True)
class StateItem:
    """An entry of `StateListed`."""

    shown: str  # its name
    root: str  # where the script has it; empty if it is registered
    kind: str  # `registered`, `adopted` (it is carried over all the same), `ignored`, or why a newcomer starts without it, in a word
    same: bool | None  # whether all ranks have the same value; null: it is not compared
    size: int  # bytes on rank 0 that are carried over
    reason: str = ""  # why a newcomer starts without it


@dataclass(frozen=True)
class StateListed:
    """The registered state, and the unregistered state that the script changes. From rank 0, after a comparison of all ranks.

    `understudy status --state` shows it. No decision depends on it.
    """

    worker: str
    step: int
    items: tuple[StateItem, ...]  # each with `shown` (name), `root` (place), `kind`, `same`, `size` (bytes) and `reason`
    left_out: int = 0  # entries that are left out


@dataclass(frozen=True)
class RankGroup:
    """Ranks that communicate with each other."""

    name: str  # its mesh dimension, or the description of its process group
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class GroupsListed:
    """The named process groups of the script. From rank 0, after a comparison of all ranks."""

    worker: str
    step: int
    groups: tuple[RankGroup, ...]  # each with `name` (a mesh dimension, a description, or "world") and `ranks`


@dataclass(frozen=True)
class DrillAsked:
    """A drill is due, or was requested: does a spare compute the same bits as a rank?"""

    rank: int  # the rank; -1: the least recently drilled one
    reason: str
    step: int = -1  # step that the job had reached, if the drill is automatic; -1: it was requested


@dataclass(frozen=True)
class Believed:
    """The decision of an operator for a disputed job: the state of this rank is right. From the HTTP interface."""

    rank: int
    reason: str


@dataclass(frozen=True)
class NodeTainted:
    """A taint of a node is set, or removed. From the HTTP interface, or from the orchestrator because of evidence."""

    node: str
    reason: str  # why the node is not trusted; empty: the taint is removed
    source: str = "operator"  # `operator`, `drain`, `check` or a detector; an operator's change also applies to taints of other sources
    part: str = ""  # part of the node, such as a GPU; empty: the node itself
    until: float = 0.0  # unix time at which the taint expires, in seconds; 0: it stays until it is removed
    leave: bool = False  # ranks are to leave the node
    deadline: float = 0.0  # of a drain: unix time by which the ranks should have left; 0: none
    lose: bool = False  # of a drain: ranks that are still there at the deadline are given up and recovered elsewhere
    also: tuple[str, ...] = ()  # nodes that are tainted in the same way at the same time, so that no rank moves between them
    by: str = ""  # `service`: set by a person for all jobs; `job`: for this job only; empty: by Understudy itself


@dataclass(frozen=True)
class NodeChecked:
    """The check of a node is over. From the agent."""

    node: str
    passed: bool  # whether the node passed
    detail: str  # the checks that failed


@dataclass(frozen=True)
class NodeReleased:
    """A node that ranks have left for good, or that is lost, is returned to the scheduler. From the orchestrator."""

    node: str


@dataclass(frozen=True)
class NodeLabelled:
    """All labels that the scheduler has for the location of a node. From the orchestrator."""

    node: str
    labels: tuple[tuple[str, str], ...]  # pairs of key and value


@dataclass(frozen=True)
class Observed:
    """Evidence of a detector. From the orchestrator.

    The event itself changes nothing: an action of the policy is another event. It is recorded for readers, for the next orchestrator, and
    for `understudy policy check --dry-run`.
    """

    detector: str  # name of the detector
    subject: str  # `node`, `device`, `worker` or `link`
    name: str  # name of the node or worker
    severity: str  # `note`, `suspect` (of a node or a part of it) or `lost` (of a worker)
    detail: str
    happened: float
    kind: str = ""  # kind of evidence, for rules of a policy, such as xid-79
    part: str = ""  # part of the node, such as gpu3
    until: float = 0.0  # unix time at which it expires, in seconds; 0: never


@dataclass(frozen=True)
class StopAsked:
    """A request to end the job. From the command line or the HTTP interface."""

    reason: str
    exit_code: int  # exit code of the job


@dataclass(frozen=True)
class Expired:
    """A timer that the orchestrator had set has expired. From the orchestrator's clock."""

    timer: str  # name of the timer


FromWorker = (
    WorkerWarm
    | CommunicationBroken
    | Quiesced
    | NewcomerReady
    | Prepared
    | Drilled
    | DrillBroken
    | Registered
    | StateListed
    | GroupsListed
    | PhaseDone
    | Verified
    | VerifyFailed
    | Uncovered
    | ReplicasDiffer
    | RedoDiffers
    | SectionFailed
    | Committed
    | ScriptFailed
    | UsesDevice
    | DeviceFailed
    | Finished
    | Notice
)
FromAgent = NodeJoined | WorkerStarted | StartRefused | WorkerLost | NodeChecked | FromWorker
Event = (
    FromAgent
    | NodesLost
    | NodeReleased
    | ClaimEnded
    | MigrationAsked
    | DrillAsked
    | Believed
    | NodeTainted
    | NodeLabelled
    | Observed
    | IncidentGraded
    | StopAsked
    | Expired
)

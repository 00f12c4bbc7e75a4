"""The events of a job: the inputs of `Machine.handle`. All of them are plain data and are journalled.

Events named after a worker come from the worker itself (through its agent) unless the comment says otherwise. The machine ignores an event
whose `generation` is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.model import DrillVerdict, Evidence, Grade, LossCause, Position, SnapshotRef


@dataclass(frozen=True)
class NodeJoined:
    """From the agent: it has connected.

    `address` is where the other nodes reach its workers; nodes of one `domain` fail together. `workers`: all that were started there, as
    far as this agent or one before it knows; None: not reported.
    """

    node: str
    address: str
    node_rank: int
    domain: str = ""  # empty: a separate domain
    spares: int = -1  # spares wanted on this node; -1: its share of the job's. A node with a rank beyond the job's has only spares
    workers: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()  # of its place in the network (`topology.py`)
    claim: int = -1  # the number of the claim (`ClaimNode`) that it serves; negative: none
    instance: str = ""  # the same for each agent of one run directory on one host; "": from an agent of an earlier version
    ranks: int = 0  # on each node, according to this agent's command; 0: not reported


@dataclass(frozen=True)
class ClaimEnded:
    """From the service: the scheduler cannot provide the node of this claim, or has taken it away again."""

    claim: int
    detail: str


@dataclass(frozen=True)
class LostNode:
    """`happened` is the unix time of its last sign of life; 0: now."""

    node: str
    detail: str
    happened: float = 0.0


@dataclass(frozen=True)
class NodesLost:
    """From the orchestrator's service: these nodes are lost permanently. Nodes that are lost together, usually a rack, are in one event."""

    nodes: tuple[LostNode, ...]


@dataclass(frozen=True)
class WorkerStarted:
    """From the agent."""

    worker: str
    node: str
    pid: int | None  # on its node; None: unknown


@dataclass(frozen=True)
class StartRefused:
    """From the agent: it cannot start the worker (no memory for a spare, fork failed, ...)."""

    worker: str
    node: str
    detail: str


@dataclass(frozen=True)
class WorkerWarm:
    """The worker has imported torch and the script's imports and can take a rank.

    `store`: host:port of its rendezvous store. `rank`: in a repeat, the rank that it was given in the meantime. `torch`: its version.
    `rejoins`: backends whose groups it joins again with the same communicator, where others take a new one.
    """

    worker: str
    store: str
    rank: int = -1
    torch: str = ""
    rejoins: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerLost:
    """From the agent (the process ended) or the hang detector. `happened` is the best estimate of the fault's unix time."""

    worker: str
    cause: LossCause
    detail: str
    happened: float


@dataclass(frozen=True)
class CommunicationBroken:
    """A collective failed here although no abort had been announced. Evidence, not yet a loss."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Quiesced:
    """The answer to `Abort` or `Pause`: the worker has stopped using the old generation and waits for `Recover`."""

    worker: str
    generation: int
    position: Position
    copies: tuple[SnapshotRef, ...]
    step: int  # last committed step


@dataclass(frozen=True)
class NewcomerReady:
    """The newcomer has run the script up to the job's position and can join (planned migrations wait for this)."""

    worker: str
    generation: int


@dataclass(frozen=True)
class Prepared:
    """A spare has run the script's set-up as `rank` in advance, and can take this rank and no other."""

    worker: str
    rank: int


@dataclass(frozen=True)
class Drilled:
    """From the spare of a drill: it has computed the same step as `rank`. `detail` describes the differences."""

    worker: str
    drill: int  # its number
    rank: int
    verdict: DrillVerdict
    step: int  # committed steps of the rank before the one that was drilled
    detail: str
    compared: int = 0  # number of tensors, values, streams and collectives
    collectives: int = 0  # number of collectives among them
    left_out: int = 0  # collectives that were not compared, because the amount of data that is sent is limited
    bytes_moved: int = 0  # state and results of collectives
    pause: float = 0.0  # seconds that the drill cost the rank
    changing: tuple[tuple[str, str], ...] = ()  # unregistered state known to change: where and name, as in `StateItem`


@dataclass(frozen=True)
class DrillBroken:
    """From the rank of a drill: it has gone on without the spare. There is no result."""

    worker: str
    drill: int  # its number
    detail: str


@dataclass(frozen=True)
class PhaseDone:
    """A measured phase on one worker: setup, attach, transfer, verify, redo. `started` is unix time."""

    worker: str
    generation: int
    phase: str
    started: float
    seconds: float
    bytes_moved: int = 0


@dataclass(frozen=True)
class Verified:
    """A newcomer's state agrees with its donors': `digests` entries were compared. `notes`: names of what could not be restored."""

    worker: str
    generation: int
    digests: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifyFailed:
    """A newcomer's state differs from its donors'. The job does not resume with it."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Uncovered:
    """A survivor found that a part of a lost rank's state has neither a replica nor a copy. The job cannot go on."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class ReplicasDiffer:
    """Ranks that must have the same state do not. No rank goes on in this generation.

    `odd`: the ranks that differ from the majority of their replicas; empty if there is no majority, and then `sides` are the ranks in
    question, grouped by their content.
    """

    worker: str
    generation: int
    odd: tuple[int, ...]
    sides: tuple[tuple[int, ...], ...]
    detail: str


@dataclass(frozen=True)
class RedoDiffers:
    """A survivor that had reached its vote of `transaction` before a loss has got another result in the redo. No rank goes on in this
    generation.

    `detail`: the differences, by name; `step`: steps that it has committed. `partly`: it had not reached its vote, and the input of a
    collective differs; `sure`: of a collective that is issued in every step.
    """

    worker: str
    generation: int
    transaction: int
    step: int
    detail: str
    partly: bool = False
    sure: bool = False


@dataclass(frozen=True)
class SectionFailed:
    """A section whose errors are reported (`job.section(on_error="report")`) has raised on this worker.

    Other ranks may wait for it in a collective of the section, so all of them go back to its begin and skip it. `detail`: the section and
    its error.
    """

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Committed:
    """The worker's first commit in this generation. Later ones are not sent; progress is read from its page.

    `compared`: number of digests of a redo that match the earlier attempt; 0: it has redone nothing, or there was nothing to compare with;
    -1: not reported, by workers of earlier versions. `collectives`: those of the redo with the same input as before, and all of them;
    `size`: the same in bytes. On a newcomer, "before" is what the lost worker had sent to its buddies.
    """

    worker: str
    generation: int
    transaction: int
    step: int
    compared: int = -1
    collectives: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)
    evidence: Evidence = Evidence.UNSAID
    uncovered: tuple[str, ...] = ()  # names, the first few: state that the script changes and that is not carried over
    copied: float = 0.0  # unix time at which the buddies of this rank had its copy again after the recovery; 0: never


@dataclass(frozen=True)
class ScriptFailed:
    """The user's code raised, or the runtime rejected it. This is not a hardware fault: the job ends."""

    worker: str
    rank: int
    step: int
    summary: str
    traceback: str
    exit_code: int = 1
    ends: bool = False  # its threads and exit handlers still run; the agent keeps this in case the worker ends without another event


@dataclass(frozen=True)
class UsesDevice:
    """The device of its node on which this worker computes; sent once, when it is known."""

    worker: str
    device: str  # as the node's detectors call it (gpu1)
    names: tuple[str, ...] = ()  # other names of it: UUID, PCI address


@dataclass(frozen=True)
class DeviceFailed:
    """An exception on this worker shows that its device has failed (`worker/devices/device_errors.py`).

    It leaves at once, and its results since its last vote are discarded. `device_faults.py` decides what is at fault.
    """

    worker: str
    rank: int  # as which it runs the script; -1: none
    transaction: int  # in which it was raised; -1: in the set-up
    step: int
    error: str  # its name, the same for the same fault on any device
    certain: bool  # the hardware or its driver has failed; otherwise, kernels of the script may be the cause
    blamed: bool  # it does not come from the loss of a peer
    device: str  # as the node's detectors call it (gpu1); empty: unknown
    happened: float
    summary: str
    traceback: str
    computes: bool = True  # the rank computes on it; False: a part that all ranks of the node share, such as a disk


@dataclass(frozen=True)
class Finished:
    """The worker's script has ended. The worker stays, as a donor, until every rank has finished."""

    worker: str
    generation: int
    step: int = 0  # the step that it has committed: so the journal alone shows how far the job came


@dataclass(frozen=True)
class Notice:
    """A message for the user about coverage, misuse, or a value that cannot survive. Shown once and kept."""

    worker: str
    rank: int
    text: str


@dataclass(frozen=True)
class IncidentGraded:
    """From the orchestrator: the machine's grade of an incident that is over, at its end or after a later drill.

    Only for readers of the events: it affects no decision. `detail`: the reason for the grade.
    """

    incident: int  # its number
    grade: Grade
    detail: str


@dataclass(frozen=True)
class MigrationAsked:
    """From the API: move a healthy rank to a spare at a step boundary."""

    rank: int
    reason: str
    to: str = ""  # the target node; empty: the one with the best spare
    device: str = ""  # of that node; empty: any


@dataclass(frozen=True)
class Registered:
    """From rank 0, after a comparison of all ranks: the roles.

    `roles[i]` is the same for ranks that hold entries of the same names. `fingerprint`: of these names, of their holders, and of the
    layouts that affect collectives; `step`: of the job.
    """

    worker: str
    generation: int
    step: int
    roles: tuple[int, ...]
    fingerprint: str


@dataclass(frozen=True)
class StateItem:
    """An item of `StateListed`."""

    shown: str  # its name
    root: str  # where the script keeps it; empty if it is registered
    kind: str  # registered, adopted (carried over nevertheless), ignored, or in a word why it starts afresh on a newcomer
    same: bool | None  # on all ranks; None: not compared
    size: int  # bytes on rank 0 that are carried over
    reason: str = ""  # why it starts afresh


@dataclass(frozen=True)
class StateListed:
    """From rank 0, after a comparison of all ranks: the registered state, and the other state that the script changes.

    Only shown, as `Notice`: the last one is kept, and it affects no decision. `left_out`: number of items for which there was no room;
    `step`: of the job.
    """

    worker: str
    step: int
    items: tuple[StateItem, ...]
    left_out: int = 0


@dataclass(frozen=True)
class RankGroup:
    """Ranks that communicate with each other. `name`: that of their mesh dimension, or the description of their process group."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class GroupsListed:
    """From rank 0, after a comparison of all ranks: the groups with a name that the script has made; "world": all ranks."""

    worker: str
    step: int
    groups: tuple[RankGroup, ...]


@dataclass(frozen=True)
class DrillAsked:
    """From the API: prove that a spare computes the same bits as `rank` (-1: the rank whose turn it is).

    `step`: the job's step at which an automatic drill is due; -1: an operator asked for it.
    """

    rank: int
    reason: str
    step: int = -1


@dataclass(frozen=True)
class Believed:
    """From the API, for a paused job whose replicas differ, or a redo and its first attempt: the state of this rank is right."""

    rank: int
    reason: str


@dataclass(frozen=True)
class NodeTainted:
    """From the API, or because of a detector's evidence: the node is not trusted, for this reason; it is trusted again if the reason is
    empty.
    """

    node: str
    reason: str
    source: str = "operator"  # a detector or an operator; an operator's decision covers the taints of all sources
    part: str = ""  # of the node
    until: float = 0.0  # unix time at which it ends; 0: when it is lifted
    leave: bool = False  # ranks must leave the node
    deadline: float = 0.0  # of a drain: as in `state.Taint`
    lose: bool = False
    also: tuple[str, ...] = ()  # nodes that are tainted at the same time, so that no rank moves from one of them to another
    by: str = ""  # as in `state.Taint`


@dataclass(frozen=True)
class NodeChecked:
    """From the agent: the result of the node's check. `detail`: what has failed."""

    node: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class NodeReleased:
    """From the orchestrator's service: a node that ranks have left permanently, or that is lost, goes back to the scheduler."""

    node: str


@dataclass(frozen=True)
class NodeLabelled:
    """From the orchestrator's service: the scheduler's labels of a node's place in the network (`topology.py`), all of them."""

    node: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Observed:
    """From the orchestrator's service: evidence, as in `detectors.base.Evidence`.

    It changes nothing, because its consequences are separate events. It is for operators, for the next orchestrator, and for trying out
    another policy.
    """

    detector: str
    subject: str
    name: str
    severity: str
    detail: str
    happened: float
    kind: str = ""
    part: str = ""
    until: float = 0.0


@dataclass(frozen=True)
class StopAsked:
    """From the command line or the API: end the job."""

    reason: str
    exit_code: int


@dataclass(frozen=True)
class Expired:
    """From the service's clock: a `SetTimer` of this name has run out."""

    timer: str


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

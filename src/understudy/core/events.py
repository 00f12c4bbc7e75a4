"""What can happen to a job: the inputs of `Machine.handle`. All of it is plain data, and all of it is journalled.

Events named after a worker come from the worker itself (through its agent) unless the comment says otherwise.
`generation` fences: the machine ignores an event of a generation that is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.core.model import BuddyCopyRef, DrillVerdict, Evidence, Grade, LossCause, Position


@dataclass(frozen=True)
class NodeJoined:
    """From the agent: it is connected. `address` is where the other nodes reach its workers; nodes of one `domain` fail together.
    `workers`: all that were started there, as far as this agent or one before it knows; None: it does not say.
    """

    node: str
    address: str
    node_rank: int
    domain: str = ""  # empty: of its own
    spares: int = -1  # spares wanted on this node; -1: its share of the job's. A node with a rank beyond the job's has nothing else
    workers: tuple[str, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()  # of its place in the network (`topology.py`)
    claim: int = -1  # the number of the claim (`ClaimNode`) that it serves; negative: none
    instance: str = ""  # the same for each agent of one run directory on one host; "": by an agent of an earlier version
    ranks: int = 0  # on each node, as this agent's command says; 0: it does not say


@dataclass(frozen=True)
class ClaimEnded:
    """From the service: the scheduler cannot give what was asked for under this number, or has taken it away again."""

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
    """From the orchestrator's service: these nodes are gone for good. Those that are lost together, a rack as a rule, come in one event."""

    nodes: tuple[LostNode, ...]


@dataclass(frozen=True)
class WorkerStarted:
    """From the agent."""

    worker: str
    node: str
    pid: int | None  # on its node; None: not known


@dataclass(frozen=True)
class StartRefused:
    """From the agent: it cannot start the worker (no memory for a spare, fork failed, ...)."""

    worker: str
    node: str
    detail: str


@dataclass(frozen=True)
class WorkerWarm:
    """The worker has imported torch and the script's imports and can take a rank. `store`: host:port of its rendezvous store.
    `rank`: in a repeat, the rank that it was given meanwhile. `torch`: its version; `rejoins`: backends whose groups it joins again with
    the same communicator, where others take a new one.
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
    """The answer to `Abort` or `Pause`: the worker touches nothing of the old generation any more and waits for `Recover`."""

    worker: str
    generation: int
    position: Position
    copies: tuple[BuddyCopyRef, ...]
    step: int  # last committed step


@dataclass(frozen=True)
class NewcomerReady:
    """The newcomer has run the script up to the job's place and can join (planned migrations wait for this)."""

    worker: str
    generation: int


@dataclass(frozen=True)
class Prepared:
    """A spare has run the script's set-up as `rank`, ahead of its loss, and can take this rank and no other."""

    worker: str
    rank: int


@dataclass(frozen=True)
class Drilled:
    """From the spare of a drill: it has computed the same step as `rank`. `detail` says in what they differ."""

    worker: str
    drill: int  # its number
    rank: int
    verdict: DrillVerdict
    step: int  # committed steps of the rank before the one that was drilled
    detail: str
    compared: int = 0  # tensors, values, streams and collectives
    collectives: int = 0  # of them
    left_out: int = 0  # collectives that were not compared, because there is a limit to what is sent
    bytes_moved: int = 0  # state and results of collectives
    pause: float = 0.0  # seconds that the rank has spent on it
    changing: tuple[tuple[str, str], ...] = ()  # unregistered state known to change: where and name, as in `StateItem`


@dataclass(frozen=True)
class DrillBroken:
    """From the rank of a drill: it has gone on without the spare. Nothing is known of what the spare would have computed."""

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
    """A newcomer's state agrees with its donors': `digests` entries were compared. `notes`: what could not be brought back, by name."""

    worker: str
    generation: int
    digests: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifyFailed:
    """A newcomer's state does not agree. The job does not resume on it."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Uncovered:
    """A survivor found that a lost rank's state is nowhere: no replica, no copy. The job cannot go on."""

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class ReplicasDiffer:
    """Ranks that must hold the same do not. `odd`: those against whom most of their replicas speak; empty if that cannot be told, and then
    `sides` are the ranks in question, grouped by what they hold. Nobody goes on in this generation.
    """

    worker: str
    generation: int
    odd: tuple[int, ...]
    sides: tuple[tuple[int, ...], ...]
    detail: str


@dataclass(frozen=True)
class RedoDiffers:
    """A survivor that had come to its vote of `transaction` before a loss has come to something else in the redo. Nobody goes on in this
    generation. `detail`: to what, by name; `step`: steps that it has committed. `partly`: it had not come to its vote, and something else
    goes into a collective; `sure`: into one that is issued in every step.
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
    """A section whose errors are to be reported (`job.section(on_error="report")`) has raised on this worker. Other ranks may wait for it
    in a collective of the section, so all of them go back to its begin and skip it. `detail`: the section and its error.
    """

    worker: str
    generation: int
    detail: str


@dataclass(frozen=True)
class Committed:
    """The worker's first commit in this generation (later ones are not sent; progress is read from its page). `compared`: digests of a
    redo that are those of the attempt before it; 0: it has redone nothing, or nothing was left to compare with; -1: it does not say, as
    workers of earlier versions. `collectives`: those of the redo into which the same was put as before, and all of them; `size`: the same
    in bytes. On a newcomer "before" is what the lost worker had sent to its buddies.
    """

    worker: str
    generation: int
    transaction: int
    step: int
    compared: int = -1
    collectives: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)
    evidence: Evidence = Evidence.UNSAID
    uncovered: tuple[str, ...] = ()  # names, the first few: the script changes them, and they are not carried over
    copied: float = 0.0  # unix time at which the buddies of this rank had its copy again after the recovery; 0: there was none


@dataclass(frozen=True)
class ScriptFailed:
    """The user's code raised, or the runtime refused it. Not a fault of the machine: the job ends."""

    worker: str
    rank: int
    step: int
    summary: str
    traceback: str
    exit_code: int = 1
    ends: bool = False  # its threads and exit handlers still run; the agent keeps this, in case that the worker ends without another


@dataclass(frozen=True)
class UsesDevice:
    """Once, when it is known: on which device of its node this worker computes."""

    worker: str
    device: str  # as the node's detectors call it (gpu1)
    names: tuple[str, ...] = ()  # others that it has: UUID, PCI address


@dataclass(frozen=True)
class DeviceFailed:
    """An exception on this worker says that its device has failed (`worker/devices/device_errors.py`). It leaves at once, and what it has
    computed since its last vote is discarded. Whose fault it is, `device_faults.py` decides.
    """

    worker: str
    rank: int  # as which it runs the script, -1: it has none
    transaction: int  # in which it was raised; -1: in the set-up
    step: int
    error: str  # its name: alike for the same fault on whatever device
    certain: bool  # the hardware or its driver has failed. Else kernels of the script may have caused it as well
    blamed: bool  # it does not come from the loss of a peer
    device: str  # of the node, as its detectors call it (gpu1); empty: not known
    happened: float
    summary: str
    traceback: str
    computes: bool = True  # the rank computes on it. False: it is a part that all ranks of the node share, such as a disk


@dataclass(frozen=True)
class Finished:
    """The worker's script has ended. It stays, as a donor, until every rank has."""

    worker: str
    generation: int
    step: int = 0  # that it has committed: with this the journal alone knows how far the job came


@dataclass(frozen=True)
class Notice:
    """Something that the user should read: coverage, misuse, a value that cannot survive. Shown once and kept."""

    worker: str
    rank: int
    text: str


@dataclass(frozen=True)
class IncidentGraded:
    """From the orchestrator: what the machine has found about an incident that is over, at its end or by a later drill. For people who read
    the events: nothing is decided by it. `detail`: the reason for the grade.
    """

    incident: int  # its number
    grade: Grade
    detail: str


@dataclass(frozen=True)
class MigrationAsked:
    """From the API: move a healthy rank to a spare at a step boundary."""

    rank: int
    reason: str
    to: str = ""  # this node; empty: wherever a spare is best
    device: str = ""  # of that node; empty: any


@dataclass(frozen=True)
class Registered:
    """From rank 0, behind a comparison of all ranks: `roles[i]` is alike for ranks that hold entries of the same names. `fingerprint`:
    of these names, of who holds them, and of the layouts that steer collectives; `step`: of the job.
    """

    worker: str
    generation: int
    step: int
    roles: tuple[int, ...]
    fingerprint: str


@dataclass(frozen=True)
class StateItem:
    """A thing of `StateListed`."""

    shown: str  # its name
    root: str  # where the script has it; empty if it is registered
    kind: str  # registered, adopted (it is carried over all the same), ignored, or why it starts afresh on a newcomer, in a word
    same: bool | None  # on all ranks; None: nobody compares it
    size: int  # bytes on rank 0, of what is carried over
    reason: str = ""  # why it starts afresh


@dataclass(frozen=True)
class StateListed:
    """From rank 0, behind a comparison of all ranks: what is registered, and what the script changes beside that. For people, as `Notice`:
    the last one is kept, and nothing is decided by it. `left_out`: items for which there was no room; `step`: of the job.
    """

    worker: str
    step: int
    items: tuple[StateItem, ...]
    left_out: int = 0


@dataclass(frozen=True)
class RankGroup:
    """Ranks that communicate with each other. `name`: of their mesh dimension, or the description of their process group."""

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
    """From the API: prove that a spare computes the same bits as `rank`, or, if that is -1, as the rank whose turn it is. `step`: that the
    job has reached, if it is by itself that a drill is due; -1: somebody has asked.
    """

    rank: int
    reason: str
    step: int = -1


@dataclass(frozen=True)
class Believed:
    """From the API, for a job that is held because its replicas, or a redo and what it redoes, differ: what this rank holds is right."""

    rank: int
    reason: str


@dataclass(frozen=True)
class NodeTainted:
    """From the API, or because of what a detector has seen: a node is not to be trusted, for this reason; it is again, if that is empty."""

    node: str
    reason: str
    source: str = "operator"  # who says so; as an operator says it, it speaks of all that others had said
    part: str = ""  # of the node
    until: float = 0.0  # unix time at which it ends; 0: when somebody says so
    leave: bool = False  # ranks are to leave the node
    deadline: float = 0.0  # of a drain: as in `state.Taint`
    lose: bool = False
    also: tuple[str, ...] = ()  # nodes of which the same is said at the same time, so that no rank moves from one of them to another
    by: str = ""  # as in `state.Taint`


@dataclass(frozen=True)
class NodeChecked:
    """From the agent: how the check of its node went. `detail`: what has failed."""

    node: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class NodeReleased:
    """From the orchestrator's service: a node that ranks have left for good, or that is lost, goes back to the scheduler."""

    node: str


@dataclass(frozen=True)
class NodeLabelled:
    """From the orchestrator's service: what the scheduler knows of a node's place in the network (`topology.py`), all of it."""

    node: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Observed:
    """From the orchestrator's service: evidence, as `detectors.base.Evidence` has it. It changes nothing: what follows from it is an event
    of its own. But people, the next orchestrator and whoever tries out another policy can see it.
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

"""The messages between workers: one dataclass each, with the version of all of them, checked where they arrive.

A worker writes its messages into a generation's store, or sends them over the connections of a generation (`peers`). Written are the
version, the name of the message and its fields, in the encoding of `codec`. pydantic checks what is read, as for agents' messages:
another version, another message, a field too many or too few, another type anywhere inside raises `BadMessage`. Tensors' contents are
not part of messages: they travel from memory to memory (`transfer`).

| message | from -> to | where |
|---|---|---|
| `PeerAddress` | each member -> all | store, `peer/MEMBER` |
| `SetupRecord` | buddies of a lost rank -> its newcomer | store, `setup/RANK`; before that each rank -> its buddies, connection |
| `MemoryDescription` | a rank that is alive -> its newcomer | store, `memory/RANK` |
| `JobProgress` | the first survivor -> all | store, `job` |
| `DonorState` | each donor -> all | store, `state/MEMBER` |
| `BuddyCopy` (sealed) | each rank -> its buddies, holder -> newcomer | connection; store, `copy/RANK/HOLDER` |
| `HandedAgain` | each rank -> its buddies | connection |
| `LastResult` | each rank -> its buddies, holder -> newcomer | connection; store, `result/RANK/HOLDER` |
| `Compared` | each rank -> all | connection |
| `DrilledCollective`, `DrilledMoment` | a rank -> the spare that computes the same step (a drill) | connection |
| `Announced`, `FirstStepStatus` | each rank -> all, in the first transaction after a recovery | store, below `first` |
| `CallSequences` | each rank -> all, with the vote of that transaction if a drill has passed | connection |
| the ballot of a vote | each rank -> all | connection, a list of numbers (`votes`) |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from pydantic import ConfigDict, StrictBool, StrictBytes, StrictInt, StrictStr, TypeAdapter, ValidationError

from understudy.messages import encoding
from understudy.worker.encoding.codec import Record, decode, encode
from understudy.worker.errors import BadMessage

VERSION = 1  # of all messages in this module; workers of one job run the same

ScriptPosition = list[StrictInt]  # [loop, iteration, index of the transaction in it]; iteration -1: outside, before that loop
Streams = dict[StrictStr, StrictBytes]  # the state of each random stream, by name
Digests = dict[StrictStr, StrictInt]  # by entry


def name_of_place(place: Iterable[int]) -> str:
    """Return the name of a place, or of the iteration or loop that it begins with."""
    return ".".join(map(str, place))


class PeerMessage(Record):
    """A dataclass that workers send each other."""

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, extra="forbid")


TRANSACTION = 8  # bytes at the begin of a trail, with its transaction: the same for all of its parts


@dataclass(frozen=True)
class PeerAddress(PeerMessage):
    """The addresses at which a member of a generation listens."""

    domain: StrictStr
    node: StrictStr
    host: StrictStr
    port: StrictInt
    local: StrictBytes  # where its Unix socket can be reached, b"": nowhere
    socket: StrictBytes  # its name
    token: StrictBytes  # which a member that connects must show


# -- parts ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed(PeerMessage):
    """A DTensor's placement on one dimension of its mesh."""

    kind: StrictStr  # shard, partial, replicate; "": as its parameter
    dimension: StrictInt = 0  # of a shard
    reduction: StrictStr = ""  # of a partial


@dataclass(frozen=True)
class TensorDescription(PeerMessage):
    """A tensor without its content."""

    dtype: StrictStr
    shape: list[StrictInt]  # of this rank's part
    stride: list[StrictInt]
    placements: list[Placed] | None  # of a DTensor
    owner: StrictStr  # the parameter that it belongs to, "": none
    device: StrictStr  # its type


@dataclass(frozen=True)
class GroupMembers(PeerMessage):
    """A process group of the script."""

    name: StrictStr
    ranks: list[StrictInt]  # global ones, in the order of the group


@dataclass(frozen=True)
class SharedObject(PeerMessage):
    """An object of a framework that some ranks use together, as one of them has it."""

    ranks: tuple[StrictInt, ...]  # global ranks that use it; one that none uses is not compared
    title: StrictStr  # its name for a person
    facts: dict[StrictStr, Any]  # what steers collectives: names for a person, and values that `codec` knows


@dataclass(frozen=True)
class CopyDigests(PeerMessage):
    """Digests of all values and small tensors at one moment, whether they were in a copy or not."""

    values: Digests
    tensors: Digests


@dataclass(frozen=True)
class StateDigests(PeerMessage):
    """What a rank reports of its state, each name once: digests, entries that it has seen move, and the parameter to which each moment
    belongs.
    """

    names: list[StrictStr]
    digests: list[StrictInt]
    moved: list[StrictInt]  # numbers of names
    owners: dict[StrictInt, StrictInt]  # number of a moment's name -> that of its parameter
    pre_vote: dict[StrictStr, list[StrictStr]]  # by function: entries that are known to change before its vote


@dataclass
class DataPosition(PeerMessage):
    """The position of a loop's source. A loader's at the top of an iteration, before its batch is drawn."""

    index: StrictInt = 0  # batches of this epoch that were drawn; for a counter the next number
    epoch: StrictInt = 0
    start: Streams = field(default_factory=dict)  # as the epoch began
    generators: list[StrictBytes] = field(default_factory=list)  # of the loader and its samplers, as the epoch began
    state: Any = None  # of a stateful loader
    ahead: Streams = field(default_factory=dict)  # of a loader that is one batch ahead: as it drew that batch


@dataclass
class Boundary(PeerMessage):
    """The top of an iteration: where its batch came from."""

    loop: StrictInt
    iteration: StrictInt
    position: DataPosition
    streams: Streams
    batch: StrictInt = 0  # digest of the batch that was drawn
    opaque: StrictStr = ""  # a type in it that has no digest


@dataclass
class RecordedCollective(PeerMessage):
    """One collective of a set-up, and its outputs."""

    operator: StrictStr
    group: StrictStr
    outputs: list[tuple[StrictStr, list[StrictInt]]]  # type and shape of each
    whole: list[torch.Tensor] | None = None
    digests: list[StrictInt] | None = None  # in place of contents that are registered state anyway


# -- messages ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetupRecord(PeerMessage):
    """What a rank's set-up received from others."""

    collectives: list[RecordedCollective]
    over: StrictInt  # when it was, on the first worker, in ns since the epoch


@dataclass(frozen=True)
class MemoryDescription(PeerMessage):
    """The moments of a rank that is alive, for a newcomer that allocates memory for them in time."""

    moments: dict[StrictStr, TensorDescription]


@dataclass
class BuddyCopy(PeerMessage):
    """The state of a rank that no replica has, as of a vote."""

    transaction: StrictInt
    place: ScriptPosition
    step: StrictInt
    streams: Streams
    boundary: Boundary | None
    values: dict[StrictStr, StrictBytes]
    tensors: dict[StrictStr, torch.Tensor]
    digests: CopyDigests
    results: dict[StrictStr, StrictBytes] = field(default_factory=dict)
    behind: list[StrictInt] = field(default_factory=list)  # the points after that vote at which it was made again
    # Those of `values` that are not registered, as they were at other moments, if they differed; b"": as of the set-up.
    earlier: dict[StrictStr, StrictBytes] = field(default_factory=dict)  # at that of the streams
    top: dict[StrictStr, StrictBytes] = field(default_factory=dict)  # at that of the boundary
    left: dict[StrictStr, StrictBytes] = field(default_factory=dict)  # what loops have set and is read after them, by LOOP:NAME
    gradients: StrictBool = False  # whether it lists the gradients that existed
    unused: list[StrictStr] = field(default_factory=list)  # those of `streams` that only the set-up has drawn from, if any code has


@dataclass(frozen=True)
class LastResult(PeerMessage):
    """The result of a transaction, which its copy lacks: the copy is made before the vote."""

    transaction: StrictInt
    data: StrictBytes  # encoded


@dataclass(frozen=True)
class HandedAgain(PeerMessage):
    """What new buddies of a rank should keep of it after a recovery. Empty for those that have it."""

    setup: StrictBytes  # an encoded `SetupRecord`
    copy: StrictBytes  # a sealed `BuddyCopy`


@dataclass(frozen=True)
class JobProgress(PeerMessage):
    """Where the job goes on, and what all ranks have agreed on so far."""

    place: ScriptPosition
    transaction: StrictInt
    step: StrictInt
    steps_here: StrictInt  # committed since the top of the iteration, or since the last loop
    steps_before: StrictInt  # committed in the iteration before that
    steps_after: list[StrictInt]  # committed at the end of each loop that is over
    drained: list[StrictBool]  # whether each of these loops reached the end of its loader
    results: dict[StrictStr, StrictBytes]  # of transactions, by place
    replicas: dict[StrictStr, tuple[StrictInt, ...]]  # class of each rank, by entry
    comparisons: StrictInt  # that have led to them
    compare_every: StrictInt  # steps
    came: list[StrictInt]  # ranks that newcomers have taken
    gradients_matter: StrictBool  # whether those that exist between two transactions are part of the state
    gradients_kept: StrictInt  # steps that were seen to keep theirs
    gradients_dropped: StrictInt
    post_vote_points: dict[StrictStr, StrictInt]  # number of each point at which values may change after a vote
    post_vote_agreed: list[StrictInt]  # those at which all ranks hand over again
    post_vote_behind: list[StrictInt]  # those of them that are after the last vote
    post_vote_owed: StrictBool  # whether a loop has ended since, and left names that are not handed over yet
    top: dict[StrictStr, StrictBytes]  # what the script has changed and did not register, as of the top of the iteration; b"": not yet
    after: dict[StrictStr, StrictBytes]  # the same, as of the last commit
    ends: list[dict[StrictStr, StrictBytes]]  # the same, as of the end of each loop that is over
    left: dict[StrictStr, StrictBytes]  # what loops have set and is read after them, by LOOP:NAME


@dataclass(frozen=True)
class DonorState(PeerMessage):
    """The state of a donor, without the contents of tensors."""

    transaction: StrictInt  # the next one
    step: StrictInt  # committed ones
    descriptions: dict[StrictStr, TensorDescription]
    state: StateDigests
    values: dict[StrictStr, StrictBytes]
    versions: list[CopyDigests]  # at its vote before the transaction in which the job goes on, and at later points
    groups: list[GroupMembers]
    sums: dict[StrictStr, StrictInt]  # digests that show in which order its groups added up when training began
    frameworks: dict[StrictStr, SharedObject]  # what steers the collectives of DDP and the like


@dataclass(frozen=True)
class Compared(PeerMessage):
    """What a rank contributes to a full comparison."""

    every: StrictInt  # steps between two comparisons in the background: rank 0's counts
    state: StateDigests
    frameworks: dict[StrictStr, SharedObject]
    groups: list[GroupMembers]  # those with a name whose first member is the rank
    sequence: StrictInt = 0  # a digest of the collectives that it issued in its last transaction


@dataclass
class DrilledCollective(PeerMessage):
    """One collective of a step that a spare computes in parallel with a rank: its inputs, and its outputs on the rank."""

    lane: StrictStr  # in which the order of collectives is the same on both
    number: StrictInt  # in its lane
    operator: StrictStr
    settings: StrictStr  # root, reduction, sizes: as text
    given: list[tuple[StrictStr, list[StrictInt]]]  # type and shape of each tensor that it reads
    digests: list[StrictInt]  # of these
    results: list[tuple[StrictStr, list[StrictInt]]]  # type and shape of each tensor that it writes
    outputs: list[torch.Tensor]
    source: StrictInt  # of a message from any rank: from which one of its group; else -1


@dataclass(frozen=True)
class DrilledMoment(PeerMessage):
    """The state of a rank at one moment of a step that a spare computes in parallel with it."""

    moment: StrictStr  # begin, vote, end
    digests: Digests  # by name: entries of the state, gradients, streams, arguments, result
    shown: dict[StrictStr, StrictBytes]  # encodings of those that are short, to show to a person
    sent: StrictInt  # collectives that were sent
    left_out: StrictInt  # collectives beyond the limit, which were not
    issued: dict[StrictStr, StrictInt]  # by lane: collectives so far, whether their results are known by now or not
    pause: StrictInt  # microseconds that the rank has spent on the drill, and not on its step


@dataclass(frozen=True)
class Announced(PeerMessage):
    """A collective that a rank is about to issue (`verification.announcements`)."""

    rank: StrictInt
    worker: StrictStr
    operator: StrictStr
    settings: StrictStr  # root and reduction
    alike: list[tuple[StrictStr, StrictInt]]  # of each tensor that has one size on all members: type and elements, or "" and bytes
    gives: list[StrictInt]  # bytes, by the index of the member that gets them; -1: none. Empty: no member in particular
    takes: list[StrictInt]  # the same, by the member that they come from
    shown: StrictStr  # for a person


@dataclass(frozen=True)
class AwaitedCall(PeerMessage):
    """A call that waits until others have issued theirs."""

    keys: dict[StrictInt, StrictStr]  # rank -> the key under which it announces that
    unless: StrictStr  # a key; if it exists, it is unknown for whom the call waits. "": none
    bound: StrictBool  # the script would wait here in any case, until they have
    shown: StrictStr  # for a person


@dataclass(frozen=True)
class FirstStepStatus(PeerMessage):
    """The progress of a rank in the first transaction after a recovery."""

    voted: StrictBool  # nothing will be issued any more
    waits: list[AwaitedCall]  # calls that it waits for, or waited for


@dataclass(frozen=True)
class CallSequences(PeerMessage):
    """All collectives that a rank has issued in a transaction."""

    worker: StrictStr
    lanes: dict[StrictStr, tuple[list[StrictInt], StrictInt, StrictInt]]  # by group: ranks of its members, collectives, their digest


Kind = TypeVar("Kind", bound=PeerMessage)


_adapters: dict[type[PeerMessage], TypeAdapter[Any]] = {}


def _adapter(kind: type[PeerMessage]) -> TypeAdapter[Any]:
    """Return a checker. Building one costs milliseconds, checking with one microseconds."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def pack(message: PeerMessage, **instead: Any) -> bytes:
    """Encode `message`, with other values `instead` of some of its fields.

    Raises `Unencodable` for a value in it that cannot be moved to another worker.
    """
    return encode([VERSION, type(message).__name__, {**vars(message), **instead} if instead else message])


def unpack(kind: type[Kind], data: bytes) -> Kind:
    """Return the message of this `kind` in `data`. Raises `BadMessage` for anything else."""
    try:
        version, name, fields = decode(data)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise BadMessage(encoding.NOT_A_MESSAGE(expected=kind.__name__, error=repr(error))) from error
    if version != VERSION:
        raise BadMessage(encoding.OTHER_VERSION(theirs=version, ours=VERSION))
    if name != kind.__name__:
        raise BadMessage(encoding.OTHER_MESSAGE(found=name, expected=kind.__name__))
    try:
        message: Kind = _adapter(kind).validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadMessage(encoding.MALFORMED_MESSAGE(expected=kind.__name__, place=where, problem=first["msg"])) from error
    return message


def prepare() -> None:
    """Build every checker now, so that a recovery does not have to wait for that."""
    given = (BuddyCopy, HandedAgain, LastResult, JobProgress, DonorState)
    drilled, first = (DrilledCollective, DrilledMoment), (Announced, FirstStepStatus, CallSequences)
    for kind in (PeerAddress, SetupRecord, MemoryDescription, Compared, *given, *drilled, *first):
        _adapter(kind)

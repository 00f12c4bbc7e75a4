"""Encode events and commands as JSON: one object per message, `{"type": "WorkerWarm", ...fields}`, the type first.

The dataclasses of `core` are the wire format; pydantic validates messages that arrive, and `common/bounds.py` their content. Nothing is
ever unpickled. Each message is one line: on the stream socket between worker and agent, and in the WebSocket's frames between agent and
orchestrator, where messages that are queued for one receiver share a frame. In an incident every rank gets the same command: one
`ToWorkers` for each node carries it.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from understudy.common.bounds import OutOfBounds, bounded
from understudy.common.page_view import PageView
from understudy.core import commands, events
from understudy.core.model import Timeouts
from understudy.messages import wire

FENCE = "understudy-fence"  # header of an orchestrator's answer to an agent: grows whenever another orchestrator begins to lead
POSITION = "understudy-journal"  # header of an agent's request: the last position in the journal that an orchestrator has reported to it
NO_POSITION = "0-0000000000000000"  # none yet
ONLY = "-"  # in place of a job's name: the only one of an orchestrator that was started with `understudy run`
LIMIT = 1 << 20  # bytes of one message or frame: tracebacks are the longest
FRAME = 1 << 18  # bytes of several messages in one frame
MOST_SLOTS = 4096  # of a node, and parts on it
MOST_OF_NODE = 4096  # bytes of a `Hello` without its parts: names, address, labels
_GROWTH = 8  # a message of another program may have at most so many times its bytes when we write it (escapes, 1e15)
_HEAD = re.compile(r'\s*\{\s*"type"\s*:\s*"(\w+)"')


class BadMessage(ValueError):
    """A message that is not one of ours: the text names the mistake."""


class NodeTooLong(BadMessage):
    """A `Hello` with more about its node than is kept. Earlier versions accepted it."""

    def __init__(self, text: str, node: str) -> None:
        super().__init__(text)
        self.node = node


@dataclass(frozen=True)
class Pages:
    """From the agent, a few times a second: the pages of its workers, by worker. Progress, not an event: never
    journalled.

    `clock` is CLOCK_MONOTONIC of the agent's host at the reading, the clock of the times in the pages.
    """

    node: str
    clock: float
    pages: dict[str, PageView]


@dataclass(frozen=True)
class Seen:
    """From the agent: a detector's evidence against its own node, or a part of it, as `detectors.base.Evidence` has it. Not
    an event: only what follows from it is journalled.
    """

    detector: str
    subject: typing.Literal["node", "device", "link"]
    severity: typing.Literal["note", "suspect"]
    kind: str
    part: str
    detail: str
    happened: float
    until: float


@dataclass(frozen=True)
class Lines:
    """From a job's agent: output of its workers, with prefixes, for everyone who follows the job's output."""

    text: str


@dataclass(frozen=True)
class Part:
    """A job's part on a node. A node whose number is beyond the job's nodes has spares only."""

    job: str
    node_rank: int
    slots: int
    spares: int


@dataclass(frozen=True)
class Hello:
    """From a node's agent, at every heartbeat: its node, its number of slots, and the jobs on it."""

    node: str
    address: str
    slots: int
    domain: str
    labels: dict[str, str]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class StartPart:
    """To a node's agent: take part in a job. The `token` allows the part to speak for this job and no other."""

    part: Part
    program: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    workers_per_node: int
    role: str
    timeouts: Timeouts
    token: str


@dataclass(frozen=True)
class EndPart:
    """To a node's agent: end its part in this job."""

    job: str


@dataclass(frozen=True)
class PartEnded:
    """From a node's agent: its part in a job is over, and the slots are free."""

    job: str
    exit_code: int


@dataclass(frozen=True)
class Journalled:
    """To a job's agent: the journal has the job's events up to this `position`, which the agent reports whenever it connects."""

    position: str


Shared = commands.Abort | commands.Publish | commands.Pause | commands.Recover | commands.Release
_SHARED = frozenset(typing.get_args(Shared))  # used for every command of a wave: much faster than isinstance with a union


@dataclass(frozen=True)
class ToWorkers:
    """To the agent: the same command for each of these `workers` of its node."""

    workers: tuple[str, ...]
    command: str  # encoded, without a worker


NodeMessage = Hello | StartPart | EndPart | PartEnded
Message = events.Event | commands.Command | Pages | Seen | Lines | NodeMessage | ToWorkers | Journalled

_TYPES: dict[str, type[typing.Any]] = {
    kind.__name__: kind
    for kind in (
        *typing.get_args(events.Event),
        *typing.get_args(commands.Command),
        *typing.get_args(NodeMessage),
        Pages,
        Seen,
        Lines,
        ToWorkers,
        Journalled,
    )
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=vars)
_BOUNDED = frozenset(typing.get_args(events.Event)) | {Seen, Hello, EndPart, PartEnded}


@functools.cache
def _adapter(name: str) -> TypeAdapter[typing.Any]:
    """Return the validator of a type. Building one costs a millisecond, using it microseconds."""
    return TypeAdapter(_TYPES[name])


def encode(message: Message) -> str:
    """One line of JSON, without the newline."""
    return _ENCODER.encode({"type": type(message).__name__, **vars(message)})


def decode(text: str | bytes) -> Message:
    """The message in `text`. Raises `BadMessage` for anything else."""
    return decode_untrusted(text)[0]


def decode_untrusted(text: str | bytes) -> tuple[Message, str]:
    """Decode a message of another process. Return it with the text that the journal may keep: `text` itself, if nothing had to be cleaned.
    Raises `BadMessage`.
    """
    message, written = decode_trusted(text, LIMIT)
    if isinstance(message, Hello):
        check_node(message)
    if len(written) > LIMIT // _GROWTH and type(message) in _BOUNDED and len(encode(message)) > LIMIT:
        raise BadMessage(wire.WRITTEN_TOO_LONG(type=type(message).__name__, most=LIMIT))
    return message, written


def check_node(hello: Hello) -> None:
    """Raise `BadMessage` for a node that no service accepts, `NodeTooLong` for one that earlier versions accepted."""
    if not 0 <= hello.slots <= MOST_SLOTS:
        raise BadMessage(wire.SLOTS_OUT_OF_RANGE(slots=hello.slots, most=MOST_SLOTS))
    if len(hello.parts) > MOST_SLOTS or any(not 0 <= number <= MOST_SLOTS for part in hello.parts for number in (part.slots, part.spares)):
        raise BadMessage(wire.PARTS_OUT_OF_RANGE(most=MOST_SLOTS))
    if (length := len(encode(replace(hello, parts=())))) > MOST_OF_NODE:
        raise NodeTooLong(wire.NODE_TOO_LONG(length=length, most=MOST_OF_NODE), hello.node)


def decode_trusted(text: str | bytes, limit: int | None = None) -> tuple[Message, str]:
    """Decode a message that this orchestrator or an earlier one has written, as `decode_untrusted` does.

    Its total length is not limited: thousands of nodes that are lost together are one event.
    """
    quick = isinstance(text, bytes) or text.isascii()
    length = len(text) if quick else len(typing.cast("str", text).encode(errors="surrogatepass"))
    if limit is not None and length > limit:
        raise BadMessage(wire.TOO_LONG(length=length, most=limit))
    try:
        text = text.decode() if isinstance(text, bytes) else text
        head = _HEAD.match(text)
        name = head[1] if head is not None else ""
        _TYPES[name]
    except (ValueError, KeyError) as error:
        raise BadMessage(wire.NOT_A_MESSAGE(line=repr(text[:200]), error=repr(error))) from error
    try:
        message: Message = _adapter(name).validate_json(text)
    except ValidationError as error:
        message = _decode_slowly(name, text, error)
    if type(message) not in _BOUNDED:
        return message, text
    try:
        fitting = bounded(message)
    except OutOfBounds as error:
        raise BadMessage(wire.MALFORMED(type=name, reason=str(error))) from error
    return fitting, text if fitting is message else encode(fitting)


def _decode_slowly(name: str, text: str, refused: ValidationError) -> Message:
    """Decode with the standard library's parser. pydantic's own refuses halves of surrogate pairs, which Python makes of undecodable bytes
    in file names, and such a name may be in a traceback. Fields that the pages of a later version have in addition are allowed.
    """
    try:
        found = json.loads(text)
        if name == Pages.__name__:
            found["pages"] = {worker: page[: len(PageView._fields)] for worker, page in found["pages"].items()}
        message: Message = _adapter(name).validate_python(found)
    except (ValidationError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise BadMessage(wire.MALFORMED(type=name, reason=str(refused))) from refused
    return message


def pack(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield frames of at most about `FRAME` characters, with the number of encoded `lines` in each. Reads one line ahead."""
    frame: list[str] = []
    size = 0
    for line in lines:
        if frame and size + len(line) >= FRAME:
            yield "\n".join(frame), len(frame)
            frame, size = [], 0
        frame.append(line)
        size += len(line) + 1
    if frame:
        yield "\n".join(frame), len(frame)


def encode_all(for_one_node: Iterable[commands.Command]) -> Iterator[str]:
    """Yield frames with these commands in order. Consecutive ones that differ only in their worker become one `ToWorkers`."""
    return (frame for frame, _ in pack(_shared(for_one_node)))


def _shared(for_one_node: Iterable[commands.Command]) -> Iterator[str]:
    for key, group in itertools.groupby(for_one_node, _all_but_worker):
        alike = list(group)
        if len(alike) > 1:
            workers = _ENCODER.encode([command.worker for command in typing.cast("list[Shared]", alike)])
            yield f'{{"type":"ToWorkers","workers":{workers},"command":{_quoted_without_worker(*key)}}}'
        else:
            yield encode(alike[0])


def _all_but_worker(command: commands.Command) -> tuple[typing.Any, ...]:
    """Return a key that is equal for commands that may share a `ToWorkers`: their type and all fields after the worker, which is the
    first.
    """
    if type(command) not in _SHARED:
        return (object(),)
    _, *rest = vars(command).values()
    return type(command), *rest


@functools.lru_cache(maxsize=4)
def _quoted_without_worker(kind: type[Shared], *rest: typing.Any) -> str:
    """Return the `command` of a `ToWorkers`, as JSON. The same text goes to thousands of nodes."""
    return _ENCODER.encode(encode(kind("", *rest)))


def unfold(message: Message) -> list[Message]:
    """Return what an agent has to do: the message itself, or the commands in a `ToWorkers`. Raises `BadMessage`."""
    if not isinstance(message, ToWorkers):
        return [message]
    command = decode(message.command)
    if not isinstance(command, Shared):
        raise BadMessage(wire.NOT_FOR_SEVERAL(type=type(command).__name__))
    return [replace(command, worker=worker) for worker in message.workers]


def prepare() -> None:
    """Build every validator now, so that the first message of each kind is as fast as the next."""
    for name in _TYPES:
        _adapter(name)

"""Events and commands as JSON: one object per message, `{"type": "WorkerWarm", ...fields}`.

The dataclasses of `core` are the wire format; pydantic checks what arrives. Nothing is ever unpickled. On a stream
socket (worker <-> agent) each message is one line.
"""

from __future__ import annotations

import functools
import json
import typing
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from understudy.core import commands, events
from understudy.core.nouns import Timeouts
from understudy.links.page import PageView

FENCE = "understudy-fence"  # header of an orchestrator's answer to an agent: grows whenever another orchestrator begins to lead
ONLY = "-"  # in place of a job's name: the only one of an orchestrator that was started with `understudy run`
LIMIT = 1 << 20  # bytes of one message: tracebacks are the longest


class BadMessage(ValueError):
    """A message that is not one of ours: its text says what is wrong with it."""


@dataclass(frozen=True)
class Pages:
    """From the agent, a few times a second: the pages of its workers, by worker. Progress, not an event: never
    journalled.

    `clock` is CLOCK_MONOTONIC of the agent's host at the reading, the clock that the pages' own times are in.
    """

    node: str
    clock: float
    pages: dict[str, PageView]


@dataclass(frozen=True)
class Lines:
    """From a job's agent: what its workers printed, with prefixes, for whoever follows the job's output."""

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
    """From a node's agent, at every heartbeat: it is there, has so many slots, and these jobs are on it."""

    node: str
    address: str
    slots: int
    domain: str
    labels: dict[str, str]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class StartPart:
    """To a node's agent: take part in a job. `token` lets the part speak for this job and no other."""

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
    """To a node's agent: end what it has of this job."""

    job: str


@dataclass(frozen=True)
class PartEnded:
    """From a node's agent: its part in a job is over, and the slots are free."""

    job: str
    exit_code: int


NodeMessage = Hello | StartPart | EndPart | PartEnded
Message = events.Event | commands.Command | Pages | Lines | NodeMessage

_TYPES: dict[str, type[typing.Any]] = {
    kind.__name__: kind
    for kind in (*typing.get_args(events.Event), *typing.get_args(commands.Command), *typing.get_args(NodeMessage), Pages, Lines)
}


@functools.cache
def _adapter(name: str) -> TypeAdapter[typing.Any]:
    """Building one costs a millisecond, checking with one microseconds."""
    return TypeAdapter(_TYPES[name])


def encode(message: Message) -> str:
    """One line of JSON, without the newline."""
    return json.dumps({"type": type(message).__name__, **asdict(message)}, separators=(",", ":"))


def decode(text: str | bytes) -> Message:
    """The message in `text`. Raises `BadMessage` for anything else."""
    if len(text) > LIMIT:
        raise BadMessage(f"a message of {len(text)} bytes is longer than {LIMIT}")
    try:
        fields = json.loads(text)
        name = fields.pop("type")
        _TYPES[name]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadMessage(f"not a message: {text[:200]!r} ({error!r})") from error
    try:
        message: Message = _adapter(name).validate_python(fields)
    except ValidationError as error:
        raise BadMessage(f"malformed {name}: {error}") from error
    return message


def prepare() -> None:
    """Build every checker now, so that the first message of each kind is as fast as the next."""
    for name in _TYPES:
        _adapter(name)

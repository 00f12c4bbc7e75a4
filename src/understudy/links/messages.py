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
from understudy.links.page import PageView

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


Message = events.Event | commands.Command | Pages

_TYPES: dict[str, type[typing.Any]] = {
    kind.__name__: kind for kind in (*typing.get_args(events.Event), *typing.get_args(commands.Command), Pages)
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

"""Events and commands as JSON: one object per message, `{"type": "WorkerWarm", ...fields}`.

The dataclasses of `core` are the wire format; pydantic checks what arrives. Nothing is ever unpickled. On a stream
socket (worker <-> agent) each message is one line.
"""

from __future__ import annotations

import json
import typing
from dataclasses import asdict

from pydantic import TypeAdapter, ValidationError

from understudy.core import commands, events

LIMIT = 1 << 20  # bytes of one message: tracebacks are the longest


class BadMessage(ValueError):
    """A message that is not one of ours: its text says what is wrong with it."""


_TYPES: dict[str, type[typing.Any]] = {
    kind.__name__: kind for union in (events.Event, commands.Command) for kind in typing.get_args(union)
}
_ADAPTERS: dict[str, TypeAdapter[typing.Any]] = {}


def encode(message: events.Event | commands.Command) -> str:
    """One line of JSON, without the newline."""
    return json.dumps({"type": type(message).__name__, **asdict(message)}, separators=(",", ":"))


def decode(text: str | bytes) -> events.Event | commands.Command:
    """The message in `text`. Raises `BadMessage` for anything else."""
    if len(text) > LIMIT:
        raise BadMessage(f"a message of {len(text)} bytes is longer than {LIMIT}")
    try:
        fields = json.loads(text)
        name = fields.pop("type")
        kind = _TYPES[name]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMessage(f"not a message: {text[:200]!r} ({error!r})") from error
    adapter = _ADAPTERS.setdefault(name, TypeAdapter(kind))
    try:
        message: events.Event | commands.Command = adapter.validate_python(fields)
    except ValidationError as error:
        raise BadMessage(f"malformed {name}: {error}") from error
    return message

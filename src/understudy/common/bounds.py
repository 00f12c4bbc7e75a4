"""Bound what arrives over a link, in one place for links, the journal and replay: `messages.decode` checks every event here.

An accepted message is written to the journal, shown on terminals, and read again by the next orchestrator, so the rule is: nothing is
accepted that could not be written and read again. Sizes are in bytes as written, that is of the JSON with everything but ASCII escaped: an
`é` has six of them.

- Names (workers, nodes, addresses, ...: every string that is not a text) are refused if they are long or not printable: what they
  name could not be distinguished from others.
- Texts for people (details, reasons, tracebacks, ...) are cleaned, so that no event is lost because of them: control characters, halves of
  surrogate pairs (undecodable bytes in a file's name) and marks that change the direction of writing are escaped as in \\x1b, and
  the middle of a text that is too long is left out.
- Numbers are refused beyond 64 bits; times and durations if they are not finite or no calendar has them.
- An unknown process id is None. Earlier versions wrote 0, which must never reach a signal: kill(0) means the caller's own group.

Known limit: messages of an orchestrator to its agents are not checked here, because agents trust it anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from enum import Enum
from json.encoder import encode_basestring_ascii
from typing import Any, TypeVar

from understudy.messages import tools
from understudy.messages.base import Text

NAME = 1 << 10  # bytes as written
TEXT = 1 << 17
NUMBER = 1 << 62  # the range of SQLite, PostgreSQL and 64-bit programs that use the API
FIRST_TIME, LAST_TIME = -6e10, 2.5e11  # unix seconds between the years 68 and 9892
TEXTS = frozenset({"detail", "reason", "summary", "traceback", "text", "notes", "message", "shown", "root", "uncovered", "changing"})
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")  # neither newline nor tab
_QUICK = 128  # a name of at most so many ASCII characters fits, whatever they are

T = TypeVar("T")


class OutOfBounds(ValueError):
    """A field is out of bounds; the text names it and the reason."""


def plain(text: str) -> str:
    """Escape what cannot be shown on a terminal or written: see above."""
    return text if text.isascii() and text.isprintable() else _HOSTILE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def size(text: str) -> int:
    """Return the bytes of a text as written, without the quotes."""
    return len(encode_basestring_ascii(text)) - 2


def cut(text: str, most: int = TEXT) -> str:
    """Cut a text to at most `most` bytes as written. Keeps the beginning, and more of the end, where an error has its last line."""
    if len(text) * 12 <= most or size(text) <= most:
        return text
    room = most - 60  # for the mark that something is missing
    head, tail = _fitting(text, room // 4), _fitting(text[::-1], room - room // 4)
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[len(text) - tail :]}"


def _fitting(text: str, most: int) -> int:
    """Return how many of the first characters have at most `most` bytes as written."""
    low, high = 0, min(len(text), most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= most else (low, middle - 1)
    return low


def known_pid(value: int | None) -> int | None:
    """Return a process id, or None for an unknown one: None, 0 (which earlier versions wrote) and negative numbers."""
    return value if value is not None and value > 0 else None


def bounded(message: T) -> T:
    """Return a message with its texts cleaned and cut; the same object if there is nothing to change. Raises `OutOfBounds`."""
    changed = {name: fit for name, value in vars(message).items() if (fit := _fit(name, value)) is not value}
    return replace(message, **changed) if changed else message  # type: ignore[type-var]


def _fit(name: str, value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is Text:
        return cut(plain(value)) if name in TEXTS else _name(name, value)
    if kind is int:
        if not -NUMBER < value < NUMBER:
            raise OutOfBounds(tools.NUMBER_TOO_LARGE(field=name))
        if name == "pid":
            return known_pid(value)
    elif kind is float:
        if not FIRST_TIME < value < LAST_TIME:  # nor is NaN
            raise OutOfBounds(tools.NOT_A_TIME(field=name, value=value))
    elif kind is tuple:
        fitting = tuple([_fit(name, item) for item in value])
        return value if all(map(_is, fitting, value)) else fitting
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _fit(name, key)
            _fit(name, item)
    elif is_dataclass(value) and not isinstance(value, type | Enum):
        return bounded(value)
    return value


def _is(one: object, other: object) -> bool:
    return one is other


def _name(name: str, value: str) -> str:
    if len(value) <= _QUICK and value.isascii() and value.isprintable():
        return value
    if not value.isprintable():
        raise OutOfBounds(tools.NAME_UNPRINTABLE(field=name, value=ascii(value[:40])))
    if size(value) > NAME:
        raise OutOfBounds(tools.NAME_TOO_LONG(field=name, value=ascii(value[:40]), most=NAME))
    return value

"""Assertions about messages by code and arguments, so that tests do not depend on wording.

with refused(UsageError, script.REGISTERED_LATE, name="model"): ...     an exception in this process
assert has(output, script.REGISTERED_LATE, name="model")           a message in what another process has written
assert codes(output) == ["US1203"]                                  the codes in it, in their order
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from string import Formatter

import pytest

from understudy.messages.base import CODE, Message, Text


def codes(text: object) -> list[str]:
    """Return all codes in a text, in their order."""
    return CODE.findall(str(text))


def has(text: object, message: Message, **arguments: object) -> bool:
    """Return whether `text` contains the message with these arguments; arguments that are not given may be anything.

    White space counts as equal however it is wrapped.
    """
    unknown = arguments.keys() - message.fields
    assert not unknown, f"{message.code} has no argument {', '.join(sorted(unknown))}; it has {', '.join(sorted(message.fields))}"
    return re.search(_pattern(message, arguments), _plain(str(text))) is not None


def begins(text: str, message: Message) -> bool:
    """Return whether the message begins with `text`, with any arguments in it.

    The last word of `text` must be a word of the template, and not its first.
    """
    words = message.template.split(" ")
    starts = [" ".join(words[: count + 1]).rstrip(",;:.") for count, word in enumerate(words) if count and not {"{", "}"} & set(word)]
    return any(re.fullmatch(_pattern(Message(message.code, start, message.cause), {}), text) for start in starts)


def refused(
    kind: type[BaseException], message: Message, **arguments: object
) -> AbstractContextManager[pytest.ExceptionInfo[BaseException], bool]:
    """Expect an exception of `kind` that carries `message` with these arguments."""
    return _refused(kind, message, arguments)  # type: ignore[return-value]  # by its type it ends the exception


@contextmanager
def _refused(kind: type[BaseException], message: Message, arguments: dict[str, object]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    with pytest.raises(kind) as caught:
        yield caught
    assert has(caught.value, message, **arguments), f"wanted {message.code} with {arguments}, got: {caught.value!r}"


def arguments_of(text: object) -> dict[str, object]:
    """Return the arguments of a message of this process."""
    assert isinstance(text, Text), f"no message with a code: {text!r}"
    return text.arguments


def _plain(text: str) -> str:
    return " ".join(text.split())


def _pattern(message: Message, arguments: dict[str, object]) -> str:
    """The message as a regular expression."""
    parts = [re.escape(f"{message.code}: ")]
    for words, name, form, conversion in Formatter().parse(message.template):
        parts.append(re.escape(re.sub(r"\s+", " ", words)))
        if name is None:
            continue
        whole = "{" + name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "") + "}"
        known = re.split(r"[.\[]", name)[0] in arguments
        parts.append(re.escape(_plain(whole.format(**arguments))) if known else ".*?")
    return "".join(parts)

"""The type of messages, and the text of one.

A `Message` is an entry of the registry: a stable code, a template, why the message appears and what to do about it. Calling it with
the template's arguments gives a `Text`: a string that begins with the code and still knows code and arguments, so that a program or a
test never has to read the sentence.

    REGISTERED_LATE = Message("US1203", "job.register({name!r}) came after the first step", cause="...", remedy="...")
    raise UsageError(REGISTERED_LATE(name="model"))

Rules:
- A code is never reused and never changes its meaning. The wording may change at any time.
- Templates are `str.format` templates with named fields only; `tests/project/test_messages.py` compares the fields with every call.
- A `Text` that crosses a process boundary becomes a plain string. Its code is still its beginning.
- This package imports nothing of ours and does no I/O, since `core` uses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter

CODE = re.compile(r"\bUS\d{4}\b")


class Text(str):
    """A message with its arguments filled in. It was made from `code` and `arguments`."""

    __slots__ = ("arguments", "code")
    code: str
    arguments: dict[str, object]

    def __new__(cls, code: str, words: str, arguments: dict[str, object]) -> Text:
        text = super().__new__(cls, f"{code}: {words}")
        text.code, text.arguments = code, arguments
        return text

    def __reduce__(self) -> tuple[type[Text], tuple[str, str, dict[str, object]]]:
        return Text, (self.code, self[len(self.code) + 2 :], self.arguments)

    def __deepcopy__(self, memo: dict[int, object]) -> Text:
        """Return this text itself: strings do not change."""
        return self


@dataclass(frozen=True)
class Message:
    """An entry of the registry.

    `template`: one line: the event, and its rank, worker, node or file. `cause`: why it happens. `remedy`: what to do;
    empty for information that needs no action.
    """

    code: str
    template: str
    cause: str
    remedy: str = ""

    def __post_init__(self) -> None:
        assert CODE.fullmatch(self.code), self.code

    def __call__(self, **arguments: object) -> Text:
        """Fill in the template. Raises `KeyError` for a missing argument."""
        return Text(self.code, self.template.format(**arguments), arguments)

    @property
    def fields(self) -> frozenset[str]:
        """The names of the template's arguments."""
        return frozenset(re.split(r"[.\[]", name)[0] for _, name, _, _ in Formatter().parse(self.template) if name)


def code_of(text: object) -> str:
    """Return the code that a message begins with, or "" if there is none. For texts that came from another process."""
    found = CODE.match(str(text))
    return found[0] if found else ""

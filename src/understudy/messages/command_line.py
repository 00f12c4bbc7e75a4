"""Messages of commands themselves."""

from __future__ import annotations

from understudy.messages.base import Message

NO_SUCH_CODE = Message(
    "US2001",
    "there is no message {code}. Known codes: {near}",
    cause="`understudy explain` was given a code that this version does not have.",
    remedy="Look for a typing error, or run `understudy explain` without a code for the list of this version.",
)

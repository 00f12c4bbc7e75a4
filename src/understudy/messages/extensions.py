"""Extensions that other packages add by entry points."""

from __future__ import annotations

from understudy.messages.base import Message

SAME_NAME = Message(
    "US8000",
    "{one} and {other} have the same name: uninstall one of the two distributions",
    cause="Two installed distributions add an extension of the same name to the same group.",
    remedy="Uninstall one of the two.",
)
NOT_LOADED = Message(
    "US8001",
    "{entry} cannot be loaded: {kind}: {reason}",
    cause="Importing the extension raised an exception.",
    remedy="Correct or update the distribution named, or uninstall it.",
)
WRONG_KIND = Message(
    "US8002",
    "{entry} must be {wanted}, but is a {found}",
    cause="The type of the object that the entry point names is not the one that its group requires.",
    remedy="Correct the entry point. docs/internals/extending.md describes the object that each group requires.",
)
INCOMPLETE = Message(
    "US8003",
    "{entry} lacks {lacking}, which every {base} has",
    cause="The class of the extension does not have all abstract methods of its base class.",
    remedy="Implement the methods that are named. The extension may have been written for another version of Understudy.",
)

"""Mistakes in the detectors' file, or in other settings that are read in the same way."""

from __future__ import annotations

from understudy.messages.base import Message

UNKNOWN_SETTING = Message(
    "US3280",
    "there is no {name!r}",
    cause="A setting or an option was given that does not exist here. Unknown settings are rejected, because a misspelt one would "
    "otherwise go unnoticed.",
    remedy="Look for a typing error. docs/operate/detectors-and-policy.md has a complete file.",
)
MISSING_SETTING = Message(
    "US3281",
    "{name} is missing",
    cause="A setting that has no default was not given.",
    remedy="Add it.",
)
BAD_SETTING = Message(
    "US3282",
    "{place}{problem}",
    cause="A setting has a value of the wrong type, or outside of its bounds.",
    remedy="Give a value of the form that the message describes.",
)
NOT_SEVERAL = Message(
    "US3283",
    "several are allowed here: write its name in two pairs of brackets",
    cause="[command] or [prometheus] was written for a list of entries.",
    remedy="Write [[command]] or [[prometheus]].",
)
UNREADABLE_FILE = Message(
    "US3284",
    "{path} cannot be read: {reason}",
    cause="The file does not exist, may not be read, or is not a text file.",
    remedy="Check the path and the permissions.",
)
LONG_FILE = Message(
    "US3285",
    "{path} is longer than {most} characters",
    cause="The file is sent to agents, so its length is limited.",
    remedy="Check that it is the right file.",
)
NOT_TOML = Message(
    "US3286",
    "{path} is not TOML: {problem}",
    cause="The file has a mistake in its syntax. The message says where.",
    remedy="Correct it. `understudy detectors FILE` tests a file without a job.",
)
NO_SUCH_DETECTOR = Message(
    "US3287",
    "{path}: off: no detector has the name {name!r}; known detectors: {known}",
    cause="`off` names a detector that is neither built in nor installed on this node.",
    remedy="Use one of the listed names, or install the package on this node.",
)
TWO_ENTRIES = Message(
    "US3288",
    "another one has the same name",
    cause="Entries of one kind are distinguished by their names, which are part of their evidence.",
    remedy="Give each entry its own name.",
)
NAME_TAKEN = Message(
    "US3289",
    "the detector {name} of {origin} has the name of another detector",
    cause="A detector of another package has the same name as a built-in one, one of the file, or one of a third package.",
    remedy="Rename one of them, or uninstall one of the packages.",
)

"""What is wrong with the detectors' file, or with other settings that are read in the same way."""

from __future__ import annotations

from understudy.messages.base import Message

UNKNOWN_SETTING = Message(
    "US3280",
    "there is no {name!r}",
    cause="A setting or an option was given that does not exist here. Nothing unknown is passed over, because a misspelt setting would be "
    "missed.",
    remedy="Look for a typing error. docs/operations.md has a whole file.",
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
    remedy="Give a value as the text asks for.",
)
NOT_SEVERAL = Message(
    "US3283",
    "there may be several: write its name in two pairs of brackets",
    cause="[command] or [prometheus] was written for an entry of which there may be several.",
    remedy="Write [[command]] or [[prometheus]].",
)
UNREADABLE_FILE = Message(
    "US3284",
    "{path} cannot be read: {reason}",
    cause="The file does not exist, may not be read, or is no text.",
    remedy="Check the path and the permissions.",
)
LONG_FILE = Message(
    "US3285",
    "{path} is longer than {most} characters",
    cause="The file is passed on to agents, so its length is bounded.",
    remedy="Check that it is the right file.",
)
NOT_TOML = Message(
    "US3286",
    "{path} is not TOML: {problem}",
    cause="The file has a mistake in its syntax. The text says where.",
    remedy="Correct it. `understudy detectors FILE` tries out a file without a job.",
)
NO_SUCH_DETECTOR = Message(
    "US3287",
    "{path}: off: there is no {name!r} here; there are {known}",
    cause="`off` names a detector that is neither built in nor installed on this node.",
    remedy="Take one of the names given, or install the package on this node.",
)
TWO_ENTRIES = Message(
    "US3288",
    "another one has the same name",
    cause="Entries of one kind are told apart by their names, which are part of their evidence.",
    remedy="Give each entry its own name.",
)
NAME_TAKEN = Message(
    "US3289",
    "the detector {name} of {origin} has the name of another one, for which it would be taken",
    cause="A detector of another package has the same name as a built-in one, one of the file, or one of a third package.",
    remedy="Rename the one that you can rename, or uninstall one of the packages.",
)

"""Messages of the check `detectors`: each detector checks the node once."""

from __future__ import annotations

from understudy.messages.base import Message

NOTHING_SUSPECTED = Message(
    "US3700",
    "{detectors}: no suspicion",
    cause="Each of these detectors checked the node once and found no evidence against it.",
)
NO_DETECTOR = Message(
    "US3701",
    "no detector could run",
    cause="Nothing that these detectors check exists on this node.",
)
FOUND = Message(
    "US3702",
    "{detector}: {subject}: {detail}{kind}",
    cause="A detector found this when it checked the node once. Evidence of severity suspect fails the check, other evidence is a note.",
    remedy="Repair what is named. If the text has its own code, run `understudy explain` with it.",
)
LEFT_OUT = Message(
    "US3703",
    "{detector} is left out: {reason}",
    cause="The detector does not find what it checks, such as the kernel log or a GPU.",
    remedy="Ignore this if the node does not have it. Otherwise see the reason.",
)
SAYS_NOTHING = Message(
    "US3704",
    "{detector} reports nothing about the node: {problem}",
    cause="The detector itself failed or took too long. This is evidence against the detector and not against the node.",
    remedy="Repair the detector, or disable it.",
)
TOO_SLOW = Message(
    "US3705",
    "its run takes too long",
    cause="A detector did not complete its run within its limit.",
    remedy="Check what it is waiting for, or raise its limit.",
)
TOO_MUCH = Message(
    "US3706",
    "it reports more than {most} findings in one run",
    cause="A detector returned more evidence in one run than is accepted.",
    remedy="Make the detector report fewer findings.",
)
NO_EVIDENCE = Message(
    "US3707",
    "{found} is not evidence",
    cause="The `look` method of a detector returned an object that is not an `Evidence`, or whose severity is invalid.",
    remedy="Correct the detector.",
)

"""What the check `detectors` says: each detector looks at the node once."""

from __future__ import annotations

from understudy.messages.base import Message

NOTHING_SUSPECTED = Message(
    "US3700",
    "{detectors}: nothing is suspected",
    cause="Each of these detectors looked at the node once and found nothing that speaks against it.",
)
NO_DETECTOR = Message(
    "US3701",
    "there is no detector that could look",
    cause="None of the detectors finds here what it looks at.",
)
FOUND = Message(
    "US3702",
    "{detector}: {subject}: {detail}{kind}",
    cause="A detector found this when it looked at the node once. What is suspected fails the check, the rest is a note.",
    remedy="Repair what is named. If the text has a code of its own, `understudy explain` says more.",
)
LEFT_OUT = Message(
    "US3703",
    "{detector} is left out: {reason}",
    cause="The detector does not find here what it looks at, such as the kernel's log or a GPU.",
    remedy="Nothing is to be done if the node does not have it. Otherwise see the reason.",
)
SAYS_NOTHING = Message(
    "US3704",
    "{detector} says nothing about the node: {problem}",
    cause="The detector itself failed or took too long. That speaks against the detector and not against the node.",
    remedy="Repair the detector, or leave it out.",
)
TOO_SLOW = Message(
    "US3705",
    "its look takes too long",
    cause="A detector did not end its look within its limit.",
    remedy="Look at what it waits for, or raise its limit.",
)
TOO_MUCH = Message(
    "US3706",
    "it finds more than {most} things in one look",
    cause="A detector gave more evidence in one look than is taken.",
    remedy="Let the detector report fewer things.",
)
NO_EVIDENCE = Message(
    "US3707",
    "{found} is no evidence",
    cause="The `look` of a detector gave an object that is no `Evidence`, or whose severity is none.",
    remedy="Correct the detector.",
)

"""An operator's own check of a node, a program that is run every so often: what it finds, and why it says nothing."""

from __future__ import annotations

from understudy.messages.base import Message

FAILED = Message(
    "US3230",
    "the check {check} failed{printed}",
    cause="The program ended with exit code 1, which means that it found something wrong with the node. The first line that it printed is "
    "quoted.",
    remedy="Run the program on the node by hand, and repair what it names.",
)
FINDING = Message(
    "US3231",
    "the check {check}: {finding}",
    cause="The program printed this finding about the node or a part of it.",
    remedy="What the finding means is known to whoever wrote the program.",
)

_NOTHING = "the check {check} says nothing about the node: "
STUCK = Message(
    "US3240",
    f"{_NOTHING}a run that was killed has not ended yet: it waits in the kernel, and none is started",
    cause="An earlier run did not end in time and was killed, but waits in the kernel for something that does not answer, such as a dead "
    "file server or a driver.",
    remedy="Look at what the process waits for (state D in ps). The check goes on by itself when that process has gone.",
)
NOT_STARTED = Message(
    "US3241",
    f"{_NOTHING}it cannot be started: {{reason}}",
    cause="The system refused to start the program.",
    remedy="Check that the program exists on this node and may be executed by the agent's user.",
)
TIMEOUT = Message(
    "US3242",
    f"{_NOTHING}it had not ended after {{seconds:g}} s, and was killed{{printed}}",
    cause="The program ran longer than its limit.",
    remedy="Make it faster, or raise limit of this check in the detectors' file.",
)
TOO_MUCH_OUTPUT = Message(
    "US3243",
    f"{_NOTHING}it printed more than {{most}} bytes{{printed}}",
    cause="The program printed more than is read, and was ended.",
    remedy="Let it print less.",
)
STATUS_TAKEN = Message(
    "US3244",
    f"{_NOTHING}how it ended went to another process{{printed}}",
    cause="Something else in the agent's process collected the exit status of the program, so it is not known.",
    remedy="Report this as a bug if nothing of your own collects child processes there.",
)
SIGNALLED = Message(
    "US3245",
    f"{_NOTHING}it was ended by {{signal}}{{printed}}",
    cause="The program was ended by a signal: it crashed, or somebody killed it.",
    remedy="Run the program on the node by hand.",
)
BAD_EXIT = Message(
    "US3246",
    f"{_NOTHING}it ended with exit code {{exit_code}}{{printed}}",
    cause="The program ended with an exit code that means neither healthy nor broken: 0 and 1 do (with output = 'json' only 0 does).",
    remedy="Run the program on the node by hand. A script in Python uses output = 'json', because exit code 1 is what an exception gives, "
    "too.",
)
NO_FINDINGS = Message(
    "US3247",
    f"{_NOTHING}its output is no list of findings: {{problem}}{{printed}}",
    cause="A check with output = 'json' must print a JSON list of findings, and this output cannot be read as one.",
    remedy="Correct what the program prints. An empty list ([]) stands for a healthy node.",
)

RELATIVE_PATH = Message(
    "US3255",
    "the program needs its whole path, beginning with /",
    cause="argv of a check begins with a name that would be searched for in PATH, which differs between nodes.",
    remedy="Write the whole path of the program.",
)
ZERO_BYTE = Message(
    "US3256",
    "no word can hold a zero byte",
    cause="A word of argv has a zero byte in it, which no command line can have.",
    remedy="Remove it.",
)
UNTIL_OR_FOR = Message(
    "US3257",
    "until and for: give one of them",
    cause="A finding has both, and each says when it ends.",
    remedy="Print one of the two.",
)
PART_AND_SUBJECT = Message(
    "US3258",
    "a device or a link needs its part, and a node has none",
    cause="A finding about a device or a link has no part, or a finding about the node has one.",
    remedy="Print a part (such as nvme0n1) with the subjects device and link, and none with node.",
)

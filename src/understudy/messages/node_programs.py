"""An operator's own check of a node, a program that is run periodically: its findings, and why it reports nothing."""

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
    remedy="Ask the author of the program for the meaning of the finding.",
)

_NOTHING = "the check {check} reports nothing about the node: "
STUCK = Message(
    "US3240",
    f"{_NOTHING}a run that was killed has not ended yet: it is waiting in the kernel, and no other run is started",
    cause="An earlier run did not end in time and was killed, but is waiting in the kernel for something that does not respond, such as a "
    "file server or a driver.",
    remedy="Check what the process is waiting for (state D in ps). The check continues automatically when that process is gone.",
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
    remedy="Make it faster, or raise the limit of this check in the detectors' file.",
)
TOO_MUCH_OUTPUT = Message(
    "US3243",
    f"{_NOTHING}it printed more than {{most}} bytes{{printed}}",
    cause="The program printed more than is read, and was ended.",
    remedy="Make it print less.",
)
STATUS_TAKEN = Message(
    "US3244",
    f"{_NOTHING}its exit status went to another process{{printed}}",
    cause="Another part of the agent's process collected the exit status of the program, so it is not known.",
    remedy="Report this as a bug unless your own code collects child processes there.",
)
SIGNALLED = Message(
    "US3245",
    f"{_NOTHING}it was ended by {{signal}}{{printed}}",
    cause="The program was ended by a signal: it crashed, or was killed.",
    remedy="Run the program on the node by hand.",
)
BAD_EXIT = Message(
    "US3246",
    f"{_NOTHING}it ended with exit code {{exit_code}}{{printed}}",
    cause="The program ended with an exit code that has no meaning. 0 means healthy and 1 broken; with output = "
    "'json', only 0 has a meaning.",
    remedy="Run the program on the node by hand. For a script in Python use output = 'json', because an exception also gives exit code 1.",
)
NO_FINDINGS = Message(
    "US3247",
    f"{_NOTHING}its output is not a list of findings: {{problem}}{{printed}}",
    cause="A check with output = 'json' must print a JSON list of findings, and this output cannot be read as one.",
    remedy="Correct the output of the program. An empty list ([]) stands for a healthy node.",
)

RELATIVE_PATH = Message(
    "US3255",
    "the program needs an absolute path, beginning with /",
    cause="argv of a check begins with a name that would be searched for in PATH, which differs between nodes.",
    remedy="Write the absolute path of the program.",
)
ZERO_BYTE = Message(
    "US3256",
    "an argument must not contain a zero byte",
    cause="An element of argv contains a zero byte, which a command line cannot have.",
    remedy="Remove it.",
)
UNTIL_OR_FOR = Message(
    "US3257",
    "until and for: give one of them",
    cause="A finding has both, and each gives its end.",
    remedy="Print one of the two.",
)
PART_AND_SUBJECT = Message(
    "US3258",
    "a device or a link needs its part, and a node has none",
    cause="A finding about a device or a link has no part, or a finding about the node has one.",
    remedy="Print a part (such as nvme0n1) with the subjects device and link, and none with node.",
)

"""Messages about the messages between processes of Understudy, and about the settings with which a job is submitted."""

from __future__ import annotations

from understudy.messages.base import Message

WRITTEN_TOO_LONG = Message(
    "US5900",
    "a {type} that is longer than {most} bytes in the journal",
    cause="The message was within the limit when it was received, but exceeds it in the form in which the journal stores it.",
    remedy="Send shorter texts.",
)

TOO_LONG = Message(
    "US5901",
    "a message of {length} bytes is longer than {most}",
    cause="A message is longer than any message of Understudy.",
    remedy="Send shorter texts.",
)

NOT_A_MESSAGE = Message(
    "US5902",
    "not a message: {line} ({error})",
    cause="The data is not a JSON object that begins with a known type.",
    remedy="Install the same version of Understudy on all hosts.",
)

MALFORMED = Message(
    "US5903",
    "malformed {type}: {reason}",
    cause="The message has a known type, and one of its fields is missing or has a value that is not allowed.",
    remedy="Install the same version of Understudy on all hosts.",
)

NOT_FOR_SEVERAL = Message(
    "US5904",
    "{type} is not for several workers",
    cause="A command for one worker was sent to several.",
    remedy="Install the same version of Understudy on all hosts.",
)

NESTED_TOO_DEEPLY = Message(
    "US5905",
    "a message nested too deeply",
    cause="The data is JSON with thousands of nested brackets.",
    remedy="Find out what writes to descriptors by number in the script.",
)

NOT_A_WORKERS = Message(
    "US5906",
    "{type} must not be sent by a worker",
    cause="A worker sent a message that only an agent or an orchestrator sends.",
    remedy="Find out what writes to descriptors by number in the script.",
)

IN_ANOTHERS_NAME = Message(
    "US5907",
    "{type} in the name of {worker!r}",
    cause="A worker sent a message that is about another worker.",
    remedy="Find out what writes to descriptors by number in the script.",
)

LINE_TOO_LONG = Message(
    "US5908",
    "a message longer than {most} bytes",
    cause="A worker sent a line that is longer than any message of Understudy.",
    remedy="Find out what writes to descriptors by number in the script.",
)

SLOTS_OUT_OF_RANGE = Message(
    "US5913",
    "a node has 0 to {most} slots, not {slots}",
    cause="The agent of the node reported this number of slots.",
    remedy="Give `understudy agent` another number with --slots.",
)

PARTS_OUT_OF_RANGE = Message(
    "US5914",
    "a node serves at most {most} jobs, each with 0 to {most} slots and spares",
    cause="The agent of the node listed too many jobs, or numbers that are out of range.",
    remedy="Install the same version of Understudy on all hosts.",
)

NODE_TOO_LONG = Message(
    "US5915",
    "the name, address, failure domain and labels of a node have {length} bytes as JSON; {most} are allowed",
    cause="The orchestrator keeps these values for every node, so their length is limited.",
    remedy="Give `understudy agent` fewer labels, or shorter ones.",
)

TOO_MANY_RANKS = Message(
    "US5912",
    "{ranks} ranks; a job has at most {most}",
    cause="The number of nodes times the workers of each is larger than any job has.",
    remedy="Correct the numbers.",
)
PREPARED_WITHOUT_SPARES = Message(
    "US5910",
    "{prepared} spares cannot be prepared: there are {spares}",
    cause="A submitted job requests more prepared spares than it has spares.",
    remedy="Request more spares, or fewer prepared ones.",
)

DRILLS_IMPOSSIBLE = Message(
    "US5911",
    "drills are required, but none are possible: they need drill_at, spares, and replenish",
    cause="A submitted job requires drills, and its other fields make them impossible.",
    remedy="Set drill_at, spares and replenish, or leave out require_drill.",
)

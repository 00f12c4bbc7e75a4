"""Messages about what processes of Understudy send to each other, and about what a job is submitted with."""

from __future__ import annotations

from understudy.messages.base import Message

WRITTEN_TOO_LONG = Message(
    "US5900",
    "a {type} that is longer than {most} bytes when it is written",
    cause="A message is within the limit as it came, and longer than it in the form in which the journal keeps it.",
    remedy="Send shorter texts.",
)

TOO_LONG = Message(
    "US5901",
    "a message of {length} bytes is longer than {most}",
    cause="A message is longer than any of ours.",
    remedy="Send shorter texts.",
)

NOT_A_MESSAGE = Message(
    "US5902",
    "not a message: {line} ({error})",
    cause="What came is no JSON object that begins with a known type.",
    remedy="Install the same version of Understudy on all hosts.",
)

MALFORMED = Message(
    "US5903",
    "malformed {type}: {reason}",
    cause="The message has a known type, and a field of it is missing or has a value that is not allowed.",
    remedy="Install the same version of Understudy on all hosts.",
)

NOT_FOR_SEVERAL = Message(
    "US5904",
    "{type} is not for several workers",
    cause="A command that is for one worker came as one for several.",
    remedy="Install the same version of Understudy on all hosts.",
)

NESTED_TOO_DEEPLY = Message(
    "US5905",
    "a message nested too deeply",
    cause="What came is JSON with thousands of brackets in each other.",
    remedy="Find out what writes to descriptors by number in the script.",
)

NOT_A_WORKERS = Message(
    "US5906",
    "{type} is not for a worker to say",
    cause="A message came from a worker that only an agent or an orchestrator sends.",
    remedy="Find out what writes to descriptors by number in the script.",
)

IN_ANOTHERS_NAME = Message(
    "US5907",
    "{type} in the name of {worker!r}",
    cause="A worker has sent a message that is about another worker.",
    remedy="Find out what writes to descriptors by number in the script.",
)

LINE_TOO_LONG = Message(
    "US5908",
    "a message longer than {most} bytes",
    cause="A worker has sent a line that is longer than any of our messages.",
    remedy="Find out what writes to descriptors by number in the script.",
)

SLOTS_OUT_OF_RANGE = Message(
    "US5913",
    "a node has 0 to {most} slots, not {slots}",
    cause="An agent says of its node that it takes so many workers.",
    remedy="Give `understudy agent` another number with --slots.",
)

PARTS_OUT_OF_RANGE = Message(
    "US5914",
    "a node has at most {most} parts of jobs, each with 0 to {most} slots and spares",
    cause="An agent says that it has parts of jobs as there cannot be.",
    remedy="Install the same version of Understudy on all hosts.",
)

NODE_TOO_LONG = Message(
    "US5915",
    "the name, address, failure domain and labels of a node have {length} bytes as JSON; {most} are allowed",
    cause="They are kept for every node, and shown in lists.",
    remedy="Give `understudy agent` fewer labels, or shorter ones.",
)

TOO_MANY_RANKS = Message(
    "US5912",
    "{ranks} ranks; a job has at most {most}",
    cause="The nodes times the workers of each are more than any job has.",
    remedy="Correct the numbers.",
)
PREPARED_WITHOUT_SPARES = Message(
    "US5910",
    "{prepared} spares cannot be prepared where there are {spares}",
    cause="A submitted job asks for more prepared spares than it has spares.",
    remedy="Ask for more spares, or for fewer prepared ones.",
)

DRILLS_IMPOSSIBLE = Message(
    "US5911",
    "drills are required, and none can be: they need drill_at, spares, and that these are replaced",
    cause="A submitted job requires drills, and its other fields rule them out.",
    remedy="Set drill_at, spares and replenish, or do without require_drill.",
)

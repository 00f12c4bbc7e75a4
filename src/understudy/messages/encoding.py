"""Messages about values that are encoded for another worker, and about messages of other workers that cannot be read."""

from __future__ import annotations

from understudy.messages.base import Message

# -- what has no encoding ------------------------------------------------------------------------------------------------------

NO_ENCODING = Message(
    "US1801",
    "a {type}",
    cause="A value of this type was to be sent to another worker. Numbers, strings, bytes, tensors, arrays and containers of them have "
    "an encoding; other types have none, because nothing is pickled.",
    remedy="Convert the value where it is stored, for example to a number, a string, a tensor or a dict of them.",
)
NO_ENCODING_OF_SUBCLASS = Message(
    "US1802",
    "a {type}; take its local tensor",
    cause="A tensor of a subclass, such as a DTensor, is a value in a state_dict or a result, where only plain tensors have an encoding.",
    remedy="Store the plain tensor, for example with to_local() or full_tensor().",
)
NESTED_TOO_DEEP = Message(
    "US1803",
    "a value that is nested more than {deepest} levels deep in tuples, sets, arrays or objects",
    cause="The value holds tuples, sets, arrays or objects within each other beyond the depth that can be decoded on any thread.",
    remedy="Store it flatter, for example as one list.",
)
LISTS_TOO_DEEP = Message(
    "US1804",
    "a value that is nested too deep in lists and dicts; {deepest} can be encoded",
    cause="The value holds lists or dicts within each other beyond the depth that can be encoded, or a container that holds itself.",
    remedy="Store it flatter, for example as one list.",
)
BEYOND_ENCODING = Message(
    "US1805",
    "a value beyond what can be encoded ({error})",
    cause="The value is text with lone surrogates, an integer of thousands of digits, or exceeds another limit of the encoding.",
    remedy="Store bytes instead of text that is not valid Unicode, and smaller numbers.",
)
NOT_DENSE = Message(
    "US1811",
    "a tensor of shape {shape} and strides {strides} is not dense",
    cause="The tensor is a view with gaps or overlaps in memory, so its memory cannot be read as a whole.",
    remedy="Use tensor.contiguous() or tensor.clone().",
)

# -- messages of other workers -------------------------------------------------------------------------------------------------

NOT_A_MESSAGE = Message(
    "US1821",
    "data from another worker is not a valid {expected}: {error}",
    cause="Bytes that another worker sent cannot be decoded: they were damaged, or a program that is not a worker of this job sent them.",
    remedy="Check that only workers of this job reach its ports, and that every node has the same version of Understudy.",
)
OTHER_VERSION = Message(
    "US1822",
    "another worker uses version {theirs!r} of Understudy's messages, this one version {ours}: install the same version of Understudy on "
    "every node",
    cause="Two nodes of the job have different versions of Understudy installed.",
    remedy="Install the same version of Understudy on every node, and start the job again.",
)
OTHER_MESSAGE = Message(
    "US1823",
    "another worker sent {found!r} where a {expected} was expected",
    cause="Two workers disagree about the next message: they run different versions of Understudy, or one of them is at a different place.",
    remedy="Install the same version of Understudy on every node; if the versions are the same, report this as a bug.",
)
MALFORMED_MESSAGE = Message(
    "US1824",
    "malformed {expected} of another worker: {place}: {problem}",
    cause="A message of another worker has a field that is missing, unknown or of another type.",
    remedy="Install the same version of Understudy on every node; if the versions are the same, report this as a bug.",
)
UNKNOWN_DTYPE = Message(
    "US1825",
    "another worker describes a tensor of type {dtype!r}, which this torch does not have",
    cause="Two nodes of the job have different versions of torch installed, and a tensor has a type that only one of them knows.",
    remedy="Install the same version of torch on every node.",
)
MALFORMED_PATH = Message(
    "US1831",
    "the location of a variable of the script cannot be read: {error}",
    cause="Another worker sent the value of a variable together with a location that cannot be read.",
    remedy="Install the same version of Understudy on every node; if the versions are the same, report this as a bug.",
)
MALFORMED_ENTRY = Message(
    "US1832",
    "{entry} from another worker is malformed: {error}",
    cause="Another worker sent the value of a variable of the script that cannot be decoded.",
    remedy="Install the same version of Understudy on every node; if the versions are the same, report this as a bug.",
)
MALFORMED_NAME = Message(
    "US1833",
    "{name} from another worker is malformed: {error}",
    cause="Another worker sent the value of a variable that remains after a loop, and it cannot be decoded.",
    remedy="Install the same version of Understudy on every node; if the versions are the same, report this as a bug.",
)

"""Messages of the network check, and of `understudy check-node --serve` on the other side."""

from __future__ import annotations

from understudy.messages.base import Message

_OTHER_SIDE = "Read the messages of `understudy check-node --serve` on the other node."

CARRIES = Message(
    "US3800",
    "at least {least:.2f} Gbit/s to and from each peer",
    cause="All data that was sent arrived unchanged, and fast enough.",
)
CORRUPT = Message(
    "US3801",
    "{way}: {wrong} of {count} MiB arrived corrupted",
    cause="Data was changed in transit, although TCP has checksums: an adapter, a switch or memory on the way is broken.",
    remedy="Measure between other pairs of nodes to find out which part it is.",
)
SLOW = Message(
    "US3802",
    "{way}: {gbits:.2f} Gbit/s, {wanted:g} are required (--min-gbits)",
    cause="The network carries less than required.",
    remedy="Check the speed of the adapter, and measure again without other traffic. One connection carries at most 10 to 40 Gbit/s.",
)
NO_PEER = Message(
    "US3803",
    "there is no peer to measure with (--peer; understudy check-node --serve on another node)",
    cause="The network can only be checked with another node, and none was given.",
    remedy="Run understudy check-node --serve on another node and give its address with --peer.",
)
SERVED = Message(
    "US3804",
    "{gbits:.2f} Gbit/s from it, {wrong} of {count} blocks wrong; then data was sent to it for the same time",
    cause="A node has measured the network to this one.",
)

NO_ANSWER = Message(
    "US3810",
    "does not answer within {seconds:g} s",
    cause="No connection could be made: the other node is down, or packets are dropped on the way.",
    remedy="Check that the node is up, and that its port is not blocked.",
)
UNREACHABLE = Message(
    "US3811",
    "cannot be reached: {reason}",
    cause="The system refused to connect.",
    remedy="Check the address and the network.",
)
NOT_LISTENING = Message(
    "US3812",
    "cannot be reached: {reason}; is `understudy check-node --serve` running there?",
    cause="The other node responds, but no process listens on this port.",
    remedy="Run understudy check-node --serve there, and check the port.",
)
NOTHING_SENT = Message(
    "US3813",
    "nothing was sent: more time is needed (--seconds)",
    cause="Not even one block was sent in the given time.",
    remedy="Raise --seconds.",
)
BUSY = Message(
    "US3814",
    "it is already measuring with as many nodes as it may: try again later",
    cause="Too many nodes are measuring with this peer at the same time.",
    remedy="Try again, or choose another peer.",
)
NOT_OURS = Message(
    "US3815",
    "the program that listens there is not `understudy check-node --serve`",
    cause="Another program answers on this port.",
    remedy="Check the port.",
)
WRONG_TOKEN = Message(
    "US3816",
    "it does not know this token: give both sides the same one (--token-file, or UNDERSTUDY_TOKEN)",
    cause="Both sides prove to each other that they have the same token, but their tokens differ.",
    remedy="Give both sides the same token.",
)
NO_TOKEN_THERE = Message(
    "US3817",
    "it does not know the token itself: another program answers there",
    cause="The other side accepted the proof but could not give one itself.",
    remedy="Find out what listens on that port.",
)
UNKNOWN_TOKEN = Message(
    "US3818",
    "it does not know the token",
    cause="A node tried to measure with this one and did not prove that it has the token.",
    remedy="Give both sides the same token if the node is yours.",
)

TAKES_NOTHING = Message(
    "US3825",
    "it read no data for {seconds:g} s",
    cause="The connection is open, but the other side does not read the data.",
    remedy=_OTHER_SIDE,
)
SENDS_NOTHING = Message(
    "US3826",
    "it sent no data for {seconds:g} s",
    cause="The connection is open, but the other side sends nothing.",
    remedy=_OTHER_SIDE,
)
BROKEN = Message(
    "US3827",
    "the connection failed: {reason}",
    cause="The connection ended in the middle of the measurement.",
    remedy=f"{_OTHER_SIDE} If it happens again, check the network between the nodes.",
)
CLOSED = Message(
    "US3828",
    "it closed the connection during the measurement",
    cause="The other side ended before the measurement was done.",
    remedy=_OTHER_SIDE,
)
ENDLESS = Message(
    "US3829",
    "it did not finish within {seconds:.0f} s",
    cause="The measurement took longer than its limit.",
    remedy="Measure again without other traffic.",
)
BAD_REQUEST = Message(
    "US3830",
    "it requests {seconds} seconds",
    cause="The other side requests a measurement of a length that is not allowed.",
    remedy="Use at most 60 seconds.",
)
BAD_COUNT = Message(
    "US3831",
    "it reports {count} received blocks, {wrong} of them wrong, in {seconds} seconds",
    cause="The other side reports impossible numbers.",
    remedy="Run the same version on both sides.",
)
TOO_MUCH_SENT = Message(
    "US3832",
    "it sends more than {most} bytes",
    cause="The other side sends without end.",
    remedy="Run the same version on both sides.",
)
BAD_MARK = Message(
    "US3833",
    "it sent {mark!r} between two blocks",
    cause="The other side violates the protocol.",
    remedy="Run the same version on both sides.",
)

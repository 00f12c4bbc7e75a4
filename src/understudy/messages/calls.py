"""Messages about collectives that do not match: between ranks after a recovery, and between a rank and the spare that drills its step."""

from __future__ import annotations

from understudy.messages.base import Message

# -- between ranks, in the first transaction after a recovery --------------------------------------------------------------------

CALLS_DIFFER = Message(
    "US1701",
    "{first}, while {others}",
    cause="Members of a group issue different collectives at the same position, or the same one with another root, reduction or size.",
    remedy="Look for a branch or a size that depends on something that is not registered, and verify the fix with `understudy drill`.",
)
PARTS_DIFFER = Message(
    "US1702",
    "{giver} issues {given_call} and sends {given} bytes to rank {taker_rank}, while {taker} issues {taken_call} and expects {taken} bytes "
    "from rank {giver_rank}",
    cause="In a gather, scatter or all-to-all, the size of the part that one rank sends differs from its receiver's buffer.",
    remedy="Look for a size that depends on something that is not registered, and verify the fix with `understudy drill`.",
)
MESSAGE_TOO_LONG = Message(
    "US1703",
    "{sender} sends {sent} bytes ({sent_call}) to rank {receiver_rank}, while {receiver} waits for {expected} ({expected_call})",
    cause="A rank sends a message that does not fit into the tensor in which its receiver waits for it.",
    remedy="Look for a size that depends on something that is not registered, and verify the fix with `understudy drill`.",
)
COUNTS_DIFFER = Message(
    "US1704",
    "on group {group!r} of ranks {ranks} rank {rank} ({worker}) has issued {count} collectives, while rank {other_rank} ({other_worker}) "
    "has issued {other_count} collectives",
    cause="When the first transaction after a recovery reached its vote, members of a group had issued different numbers of collectives.",
    remedy="Look for a branch that depends on something that is not registered, and verify the fix with `understudy drill`.",
)
SEQUENCES_DIFFER = Message(
    "US1705",
    "on group {group!r} of ranks {ranks} rank {rank} ({worker}) has issued {count} collectives, while rank {other_rank} ({other_worker}) "
    "has issued {other_count} collectives of another kind or size",
    cause="When the first transaction after a recovery reached its vote, members of a group had issued the same number of collectives, but "
    "their kinds, sizes or order differ.",
    remedy="Look for a branch or a size that depends on something that is not registered, and verify the fix with `understudy drill`.",
)

# -- between a rank and a spare, in a drill ------------------------------------------------------------------------------------

SPARE_ISSUES_ANOTHER = Message(
    "US1711",
    "the spare issues {here}, rank {rank} {there}",
    cause="In a drill, a spare computed a rank's step and reached a different collective at the same position.",
    remedy="Look for a branch or a size that depends on something that is not registered.",
)
ONLY_SPARE_ISSUES = Message(
    "US1712",
    "the spare issues {call}, rank {rank} does not",
    cause="In a drill, a spare computed a rank's step and issued a collective that the rank did not issue.",
    remedy="Look for a branch that depends on something that is not registered.",
)
ONLY_RANK_ISSUES = Message(
    "US1713",
    "rank {rank} issues {call}, the spare does not",
    cause="In a drill, a spare computed a rank's step to its end without a collective that the rank issued.",
    remedy="Look for a branch that depends on something that is not registered.",
)
INPUT_SIZES_DIFFER = Message(
    "US1714",
    "the input to {call}: {here} on the spare, {there} on the rank",
    cause="In a drill, the tensors that a spare passed to a collective differ in type or shape from the rank's.",
    remedy="Look for a size that depends on something that is not registered.",
)
INPUT_DIFFERS = Message(
    "US1715",
    "the input to {call} differs on the spare",
    cause="In a drill, a spare computed different values for a collective than the rank did.",
    remedy="Look for a variable that the step depends on and that is not registered.",
)
OBJECT_DIFFERS = Message(
    "US1716",
    "the object that is passed to {call} differs on the spare",
    cause="In a drill, a spare passed a different object to all_gather_object, broadcast_object_list or a similar function than the "
    "rank did.",
    remedy="Look for a variable that the step depends on and that is not registered.",
)

# -- between an attempt that a loss has interrupted and its redo ----------------------------------------------------------------

REDO_ISSUES_ANOTHER = Message(
    "US1721",
    "collective {number} on group {lane!r} is {here} in the redo, but was {there}",
    cause="A step was interrupted and is redone. At this position its redo calls a different collective, or the same one with different "
    "sizes.",
    remedy="Look for a branch or a size that depends on something that is not registered and changes in the step.",
)
REDO_GIVES_ANOTHER = Message(
    "US1722",
    "the input to collective {number} on group {lane!r}, {call}{of} differs",
    cause="A step was interrupted and is redone. The values that its redo passes to this collective differ from those of the interrupted "
    "attempt.",
    remedy="Look for something that is not registered and changes in the step: a counter, a cache, a generator, data that is read "
    "differently; or for kernels that are not deterministic. A collective over timings always differs.",
)
LOST_ISSUED_ANOTHER = Message(
    "US1724",
    "collective {number} on group {lane!r} is {here}, but the lost worker had called a different one at this position",
    cause="A newcomer redoes the interrupted step and calls a different collective than the lost worker.",
    remedy="Look for a branch or a size that depends on something that is not registered.",
)
LOST_GAVE_ANOTHER = Message(
    "US1725",
    "the input to collective {number} on group {lane!r}, {call}, differs from that of the lost worker",
    cause="A newcomer redoes the interrupted step and passes different values to a collective than the lost worker.",
    remedy="Look for something that is not registered and that the step depends on, or for kernels that are not deterministic.",
)
LOST_ISSUED_MORE = Message(
    "US1726",
    "the lost worker had called {count} collectives on a group, but the newcomer calls only {issued}",
    cause="A newcomer redoes the interrupted step and calls fewer collectives than the lost worker had called.",
    remedy="Look for a branch that depends on something that is not registered.",
)
REDO_ISSUES_LESS = Message(
    "US1723",
    "collective {number} on group {lane!r}, {call}, is not called in the redo",
    cause="A step was interrupted and is redone. The interrupted attempt called a collective that its redo does not call.",
    remedy="Look for a branch that depends on something that is not registered and changes in the step.",
)

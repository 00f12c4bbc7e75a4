"""Evidence about workers, from the progress that they report: hangs and stragglers."""

from __future__ import annotations

from understudy.messages.base import Message

_RAISE_LIMIT = "If the rank only needed longer than the limit, wrap the code in `with job.long(...)`, or raise --hang-limit."

SILENT = Message(
    "US3000",
    "no heartbeat for {silence:.1f} s (limit {limit:.1f} s): stopped, or stuck in a call",
    cause="The heartbeat thread of this worker did not run for longer than the limit, while the threads of other workers did. Its process "
    "is stopped, or a call holds the interpreter's lock and does not return.",
    remedy="The worker is ended and a spare takes over its rank. If it happens again, read its last output and the stack of the call. If a "
    "call of the script may take that long, raise --hang-limit.",
)
BEHIND = Message(
    "US3001",
    "no progress of the job for {stalled:.1f} s (limit {limit:.1f} s), and rank {rank} alone is behind: {activity} in transaction "
    "{transaction} after {collectives} collectives{where}",
    cause="No rank made progress for longer than the limit. All other ranks are further along than this one and are waiting for it.",
    remedy=f"The worker of this rank is ended and a spare takes over the rank. {_RAISE_LIMIT}",
)
WAITS_FOR_NONE = Message(
    "US3002",
    "no progress of the job for {stalled:.1f} s (limit {limit:.1f} s), and rank {rank} alone is not waiting for another rank: {activity} "
    "in transaction {transaction} after {collectives} collectives{where}",
    cause="No rank made progress for longer than the limit. All ranks are equally far along, all others are waiting in a collective, and "
    "this one is not.",
    remedy=f"The worker of this rank is ended and a spare takes over the rank. {_RAISE_LIMIT}",
)
WORKS_ALONE = Message(
    "US3004",
    "the other ranks have waited {seconds:.0f} s for this one, which is alone {place}{where}; its worker is ended after {limit:.0f} s",
    cause="One rank is working while all others wait for it: an evaluation, a checkpoint, an upload, or a call that does not return.",
    remedy="Ignore this if the work is meant to take so long. Otherwise check the line of the script that is named. Use `with "
    "job.long(...)` to give a section of code its own limit, or --alone-limit for all of the script.",
)
NEVER_ENDS = Message(
    "US3006",
    "the script failed, and its threads or exit handlers have not ended for {seconds:.0f} s{where}",
    cause="Python waits for threads that are not daemons and for exit handlers before a process ends, and these do not end.",
    remedy="Make the threads daemons, or let the script end them when it fails. The error itself is in the log of the rank.",
)
UNINTERRUPTIBLE = Message(
    "US3005",
    "{worker} hung in a system call that cannot be interrupted (state D), at {where}",
    cause="The main thread is waiting in the kernel for a disk, a network file system or a device that does not respond.",
    remedy="Check the node's file systems and devices, and its kernel log, before it is used again.",
)
LEFT_BEHIND = Message(
    "US3003",
    "it is in {where}, and the script of rank {others} ended before that: every rank must run the same transactions, in the same order and "
    "number. The condition that ends the loop (a count, the best loss so far) was not the same on all ranks: decide it with a collective "
    "in a transaction, and register the values that it depends on",
    cause="This rank began a transaction that the other rank never begins, because its script has already ended. Such a transaction can "
    "never commit.",
    remedy="Make the condition that ends the loop the same on all ranks: decide it from a value that a collective inside a transaction has "
    "produced, and register the values that it depends on.",
)

_SLOWER = (
    "rank {rank} is slower than its replicas: {own:.0f} ms of its own work per step instead of {usual:.0f} ms (median of {others}), over "
    "{steps} steps, "
)
COMPUTES_LONGER = Message(
    "US3020",
    _SLOWER + "in forward and backward ({activity})",
    cause="In forward and backward, this rank computes for much longer than the ranks with the same work, in several windows in a row. All "
    "ranks wait for it in each step. The usual cause is a slow device or host.",
    remedy="Check the clocks, the temperature and the other load of its node. The policy decides whether the rank leaves; the default "
    "policy only reports it. If this rank has more to compute than its replicas, this is not a fault.",
)
BUSY_AFTER_VOTES = Message(
    "US3021",
    _SLOWER + "after the vote ({activity})",
    cause="After the vote of a step, this rank works alone for much longer than its replicas, for example because it alone writes "
    "checkpoints or logs. The others wait for it.",
    remedy="Move this work to a thread or to another part of the script, or do it less often. Another worker would not be faster.",
)
BUSY_BETWEEN_STEPS = Message(
    "US3022",
    _SLOWER + "between transactions ({activity})",
    cause="Between transactions, this rank works alone for much longer than its replicas, for example because it alone evaluates or saves. "
    "The others wait for it.",
    remedy="Move this work to a thread, share it between the ranks, or do it less often. Another worker would not be faster.",
)

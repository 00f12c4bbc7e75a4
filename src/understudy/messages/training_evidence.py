"""Evidence about workers, judged from their pages: hangs and stragglers."""

from __future__ import annotations

from understudy.messages.base import Message

_RAISE_LIMIT = "If the rank only needed longer than the limit, name the stretch with `with job.long(...)`, or raise --hang-limit."

SILENT = Message(
    "US3000",
    "no sign of life for {silence:.1f} s (limit {limit:.1f} s): stopped, or stuck in a call",
    cause="The heartbeat thread of this worker has not run for longer than the limit, while the threads of other workers have. Its process "
    "is stopped, or a call keeps the interpreter's lock and does not return.",
    remedy="The worker is ended and its rank goes to a spare. Look at its last output and at the stack of the call if it happens again. "
    "If a call of the script may take that long, raise --hang-limit.",
)
BEHIND = Message(
    "US3001",
    "no progress of the job for {stalled:.1f} s (limit {limit:.1f} s), and rank {rank} alone is behind: {activity} in transaction "
    "{transaction} after {collectives} collectives{where}",
    cause="No rank has made progress for longer than the limit. All other ranks have come further than this one: they wait for it.",
    remedy=f"The worker of this rank is ended and the rank goes to a spare. {_RAISE_LIMIT}",
)
WAITS_FOR_NOBODY = Message(
    "US3002",
    "no progress of the job for {stalled:.1f} s (limit {limit:.1f} s), and rank {rank} alone waits for nobody: {activity} in transaction "
    "{transaction} after {collectives} collectives{where}",
    cause="No rank has made progress for longer than the limit. All ranks have come equally far, all others wait in a collective, and this "
    "one does not.",
    remedy=f"The worker of this rank is ended and the rank goes to a spare. {_RAISE_LIMIT}",
)
WORKS_ALONE = Message(
    "US3004",
    "the other ranks have waited {seconds:.0f} s for this one, which is alone {place}{where}; it is ended after {limit:.0f} s",
    cause="One rank works while all others wait for it: an evaluation, a checkpoint, an upload, or a call that does not return.",
    remedy="Nothing, if the work is meant to take so long. Otherwise see the line of the script that is named. `with job.long(...)` gives "
    "a stretch a limit of its own, --alone-limit all of them.",
)
NEVER_ENDS = Message(
    "US3006",
    "the script has failed, and its threads or exit handlers have not ended for {seconds:.0f} s{where}",
    cause="Python waits for threads that are not daemons and for exit handlers before a process ends, and these do not end.",
    remedy="Make the threads daemons, or let the script end them when it fails. The error itself is in the log of the rank.",
)
UNINTERRUPTIBLE = Message(
    "US3005",
    "{worker} hung in a system call that cannot be interrupted (state D), at {where}",
    cause="The main thread waits in the kernel for a disk, a network file system or a device that does not answer.",
    remedy="Check the node's file systems and devices, and its kernel log, before it is used again.",
)
LEFT_BEHIND = Message(
    "US3003",
    "it is in {where}, and the script of rank {others} has ended in front of that one: every rank must run the same "
    "transactions, in the same order and number. What ends the loop (a count, the best loss so far) was not the same on all ranks: let a "
    "transaction decide it with a collective, and register what it is decided from",
    cause="This rank began a transaction that the other rank never begins, because its script has ended already. Such a transaction can "
    "never commit.",
    remedy="Make the condition that ends the loop the same on all ranks: decide it from a value that a collective inside a transaction has "
    "agreed on, and register the values that it depends on.",
)

_SLOWER = "rank {rank} computes {own:.0f} ms a step itself, its replicas {usual:.0f} ms (median of {others}), for {steps} steps; "
COMPUTES_LONGER = Message(
    "US3020",
    _SLOWER + "in forward and backward ({activity})",
    cause="In forward and backward, this rank computes much longer than the ranks that have the same to compute, in several windows in a "
    "row. All ranks wait for it in each step. As a rule its device or its host is slow.",
    remedy="Look at the clocks, the temperature and the other load of its node. The policy decides whether the rank leaves; the default "
    "one only reports it. If this rank has more to compute than its replicas, this is no fault.",
)
BUSY_AFTER_VOTES = Message(
    "US3021",
    _SLOWER + "behind the vote ({activity})",
    cause="After the vote of a step this rank works much longer by itself than its replicas, for instance because it alone writes "
    "checkpoints or logs. The others wait for it.",
    remedy="Move this work to a thread or to another moment, or do it less often. Another worker would be no faster.",
)
BUSY_BETWEEN_STEPS = Message(
    "US3022",
    _SLOWER + "between transactions ({activity})",
    cause="Between transactions this rank works much longer by itself than its replicas, for instance because it alone evaluates or saves. "
    "The others wait for it.",
    remedy="Move this work to a thread, share it between the ranks, or do it less often. Another worker would be no faster.",
)

"""Newcomers: workers that take over a lost rank, what they must do in the same way, and the state that they receive."""

from __future__ import annotations

from understudy.messages.base import Message

_TWICE = "The script does not do the same on a newcomer as on the first workers, up to the place where the job continues."
_SAME_SETUP = (
    "Make the setup of the script independent of everything that differs in a second run: the time, random names, files that change."
)
_AFTER_VOTE = "this rank changes something {point}, after the vote, and was lost before its buddies had that change: "

NOT_MADE = Message(
    "US4500",
    "rank {rank}: donors have {entry}, which this newcomer's script did not create: create all parts of registered objects before the "
    "first transaction",
    cause="A part was added to a registered module or optimizer during training. A newcomer runs the script only up to its first step, so "
    "it lacks the part.",
    remedy="Create all parts of registered objects before the first step.",
)
MADE_MORE = Message(
    "US4501",
    "rank {rank}: this newcomer's script created {entry}, which the others do not have: create and remove parts of registered objects "
    "before the first transaction",
    cause="A part was removed from a registered module or optimizer during training. A newcomer runs the script only up to its first step, "
    "so it still has it.",
    remedy="Create and remove parts of registered objects before the first step.",
)
DIGESTS_DIFFER = Message(
    "US4502",
    "rank {rank}: {wrong} of {count} digests differ from the donors', the first one of {entries}",
    cause="The state that this newcomer received differs from that of its donors: the memory or the network is faulty, or something on the "
    "newcomer changed it in the meantime.",
    remedy="Ignore this if it happens once: another spare is tried. If it repeats, suspect the nodes of the donors, or code that changes "
    "registered state between steps.",
)
COUNTERS_DIFFER = Message(
    "US4503",
    "rank {rank}: its counters of transactions and steps are {mine}, those of rank {other} {theirs}",
    cause="The newcomer and a donor do not agree on where the job is.",
    remedy="Report it if it repeats. Another spare is tried.",
)
OTHER_ORDER = Message(
    "US4504",
    "rank {rank}: process group {group} reduces in a different order than when training began: a sum over its ranks differs in its bits, "
    "although every rank contributes the same numbers",
    cause="The communication library chose a different algorithm or topology for the new members of this group, so reductions round "
    "differently.",
    remedy="Fix the algorithm of the library (for NCCL: NCCL_ALGO, NCCL_PROTO), and connect spares in the same way as the ranks.",
)
OTHER_GROUPS = Message(
    "US4505",
    "rank {rank}: this newcomer created the process groups {mine} together with rank {other}, the job has {theirs}: the setup of the "
    "script is not reproducible",
    cause="The process groups that the script creates depend on something that a newcomer does not have.",
    remedy="Create the same process groups in the same order on every start.",
)
RESULT_OF_ANOTHER = Message(
    "US4510",
    "the result of the transaction at {place} is that of another rank",
    cause="The value that this transaction returned on the lost rank is not known, so its newcomer received the result of another rank.",
    remedy="Return numbers or small tensors, which are handed over, if results differ from rank to rank and matter.",
)
OF_ANOTHER_RANK = Message(
    "US4511",
    "{what} has the value of another rank",
    cause="A name of the script is not registered and was not handed over, so the newcomer has the value of another rank.",
    remedy="Put it into job.state if it differs from rank to rank and matters.",
)
NOT_HANDED_OVER = Message(
    "US4517",
    "{name} of the script began to change shortly before the loss, and the lost worker had not handed it over: the newcomer has the value "
    "of the other ranks, or of its setup",
    cause="A name of the script that is not registered began to change after Understudy had last looked for such names on the lost rank. "
    "Its value there is unknown.",
    remedy="Register it, or put it into job.state: registered state is handed over from the first step on.",
)
NOT_SET = Message(
    "US4512",
    "{name} of the script could not be set to the value of the other ranks",
    cause="An unregistered name that the script changes differs on the newcomer, and cannot be set from outside.",
    remedy="Register it, or put it into job.state, if it matters.",
)
LARGE_RESULT = Message(
    "US4513",
    "a large result of the setup differs here and is not registered: {what}",
    cause="A collective of the setup returned a large tensor. Only its digest is kept for newcomers, and the value that the newcomer "
    "computed instead differs.",
    remedy="Register the tensor with job.register.",
)
CHANGE_LOST = Message(
    "US4514",
    f"{_AFTER_VOTE}if this was after transaction {{transaction}}, the change is lost",
    cause="The rank changes something after its vote, and was lost before it handed over the change.",
    remedy="Change it before optimizer.step if no change may be lost.",
)
CHANGE_RUN_AGAIN = Message(
    "US4515",
    f"{_AFTER_VOTE}its newcomer ran the code after transaction {{transaction}} again, from the state that was handed over with that vote; "
    "changes of registered state by that code are lost",
    cause="The rank changes something between two transactions, and was lost before it handed over the change. The newcomer ran the code "
    "in between again.",
    remedy="Put changes of registered objects into a step or a section.",
)
PASSED_PLACE = Message(
    "US4520",
    "rank {rank}: this newcomer reached place {place}, after {goal}, where the job continues: the script does not run the same way twice",
    cause=f"{_TWICE} It skipped a transaction that the others ran.",
    remedy=_SAME_SETUP,
)
SAVES = Message(
    "US4521",
    "rank {rank}: this newcomer reached code that saves or copies {what} between transactions. It does not have the current state, and "
    "would overwrite what this rank has saved there. Put it into a @job.section that every rank calls; arguments of a section are computed "
    "outside of it",
    cause="Before it reaches the place where the job continues, a newcomer runs the code between transactions. There it would save state "
    "that it does not have yet.",
    remedy="Put the saving into a @job.section that every rank calls, and call state_dict() there, not among its arguments.",
)
REWRITES = Message(
    "US4522",
    "rank {rank}: this newcomer reached code that rewrites {file} between transactions. Its rank has already run that code, and the "
    "content that it wrote would be lost. Append to the file, put this into a @job.section that every rank calls, or do it only if "
    "job.first_run",
    cause="Before it reaches the place where the job continues, a newcomer runs the code between transactions. There it would overwrite a "
    "file of its rank.",
    remedy="Append to the file, write it in a @job.section, or only if job.first_run.",
)
AT_THE_END = Message(
    "US4523",
    "rank {rank}: this newcomer reached the end of its script without passing the place where the job continues, so it never received its "
    "rank's state: whatever it wrote at its end is wrong. The script does not run the same way twice",
    cause=f"{_TWICE} It ended before it reached that place.",
    remedy=f"{_SAME_SETUP} Do not trust files that this rank wrote at its end.",
)
RESULT_NOT_GIVEN = Message(
    "US4524",
    "rank {rank}: the result of the transaction at {place} cannot be sent to a newcomer; let it return numbers, strings, tensors or "
    "containers of them",
    cause="A transaction returned an object that cannot be moved to another process, and the newcomer needs it to reach the place where "
    "the job continues.",
    remedy="Let the transaction return numbers, strings, tensors or containers of them.",
)
STATE_NOWHERE = Message(
    "US4525",
    "rank {rank} held state that no surviving rank has ({count} entries, for example {entry}), and no copy of it exists. A replica would "
    "have saved it: one more rank with the same shard (HSDP), or not losing all replicas at once",
    cause="Large state is recovered from replicas, and none of this rank's is left.",
    remedy="Start again from a checkpoint. Give every shard a replica, on nodes that do not fail together.",
)
OTHER_COPY = Message(
    "US4526",
    "rank {rank}: the buddy copy is of transaction {transaction}, not of {wanted}",
    cause="The buddy's copy of the rank-local state is of a different vote than the recovery needs.",
    remedy="Report it if it repeats. Another spare is tried.",
)
DONORS_PARTED = Message(
    "US4527",
    "the survivors could no longer compute together: {different}",
    cause="A framework (DDP, FSDP2, a pipeline) is laid out differently on ranks that use it together.",
    remedy="Fix the difference that is named, and start again from a checkpoint.",
)
DOES_NOT_FIT = Message(
    "US4540",
    "in the first transaction after a recovery with a newcomer for {newcomers}, {found}. A newcomer computes something different than the "
    "rank that it took over, so this transaction is committed on no rank, and the job ends: another spare would fail in the same way. Most "
    "likely a branch, a size or the layout of buckets depends on something that is not registered (job.register), or on data that only the "
    "lost process had. Remove that dependency, start again from a checkpoint, and verify with a drill (understudy drill) before the next "
    "loss",
    cause="Collectives of a newcomer and of the survivors do not match. Without this check the library would hang or end processes.",
    remedy="Find the branch or size that depends on something that is not registered. Register it, verify with `understudy drill`, and "
    "start from a checkpoint.",
)
UNLIKE_CALL = Message(
    "US4541",
    "{found} (collective {number} on {group})",
    cause="Ranks of one group issue different collectives at the same place.",
    remedy="See US4540.",
)
UNLIKE_MESSAGE = Message(
    "US4542",
    "{found} (message {number} on {group}, tag {tag})",
    cause="A rank sends more than another one expects to receive.",
    remedy="See US4540.",
)
VOTED_WITHOUT = Message(
    "US4543",
    "rank {rank} waits in {call} for rank {other}, which reached its vote without it",
    cause="A rank waits for a collective or a message that another rank did not issue in this step.",
    remedy="See US4540.",
)
WAIT_FOR_EACH_OTHER = Message(
    "US4544",
    "{ranks} wait for each other: {calls}",
    cause="Ranks issue collectives or messages in an order in which none of them can continue.",
    remedy="See US4540 if the job ends. If it continues, the ranks might have waited for each other, but did not.",
)
WAITED = Message(
    "US4545",
    "rank {rank} has waited {seconds:g} s for rank {other} in {call}",
    cause="Another rank is late. It may be computing for a long time, or waiting for something outside.",
)
NOT_CHECKED = Message(
    "US4546",
    "the first transaction after the recovery is not checked further: {why}",
    cause="Collectives are compared before they run in the first step after a recovery. Here the comparison would block ranks "
    "unnecessarily, so it was stopped.",
)
JOB_ENDS = Message(
    "US4547",
    "{reason}; the job ends",
    cause="A newcomer cannot take over its rank, for the reason that is named, and another newcomer would fail in the same way.",
    remedy="Fix the cause that the message gives, and start again from a checkpoint.",
)
FRAMEWORKS_DIFFER = Message(
    "US4548",
    "rank {rank}: {difference}",
    cause="A setting that controls the collectives of a framework (such as the buckets of DDP) differs between this newcomer and its "
    "donors.",
    remedy="Set up the models in the same way on every worker of a job. Another spare is tried.",
)

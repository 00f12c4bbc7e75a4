"""Newcomers: workers that take a lost rank, what they must do like that rank, and what they receive."""

from __future__ import annotations

from understudy.messages.base import Message

_TWICE = "The script does not do the same on a newcomer as on the first workers, up to the place where the job goes on."
_SAME_SETUP = "Make what the script sets up depend on nothing that a second run does not have: no time, no random name, no changing file."
_BEHIND = "what this rank changes {point}, behind the vote, was not handed over when it was lost: "

NOT_MADE = Message(
    "US4500",
    "rank {rank}: donors have {entry}, which this newcomer's script did not make: make all parts of what is registered before the first "
    "transaction",
    cause="A registered module or optimizer has got a part during training. A newcomer runs the script only up to its first step, so it "
    "lacks the part.",
    remedy="Make all parts of registered objects before the first step.",
)
MADE_MORE = Message(
    "US4501",
    "rank {rank}: this newcomer's script has made {entry}, which the others do not have: make and remove parts of what is registered "
    "before the first transaction",
    cause="A registered module or optimizer has lost a part during training. A newcomer runs the script only up to its first step, so it "
    "still has it.",
    remedy="Make and remove parts of registered objects before the first step.",
)
DIGESTS_DIFFER = Message(
    "US4502",
    "rank {rank}: {wrong} of {count} digests do not agree with the donors', the first one of {entries}",
    cause="The state that this newcomer has received is not the state of its donors: memory or network are at fault, or something on the "
    "newcomer has changed it meanwhile.",
    remedy="Nothing, if it happens once: another spare tries. If it repeats, suspect the nodes of the donors, or code that changes "
    "registered state between steps.",
)
COUNTERS_DIFFER = Message(
    "US4503",
    "rank {rank}: its counters of transactions and steps are {mine}, those of rank {other} {theirs}",
    cause="The newcomer and a donor do not agree on where the job is.",
    remedy="Another spare tries. Report it if it repeats.",
)
OTHER_ORDER = Message(
    "US4504",
    "rank {rank}: process group {group} adds up in another order than when training began: a sum over its ranks is not the same, bit for "
    "bit, although every rank gives the same numbers",
    cause="The communication library has chosen another algorithm or topology for the new members of this group, so reductions round "
    "differently.",
    remedy="Fix the algorithm of the library (for NCCL: NCCL_ALGO, NCCL_PROTO), and let spares be connected like the ranks.",
)
OTHER_GROUPS = Message(
    "US4505",
    "rank {rank}: this newcomer made the process groups {mine} together with rank {other}, the job has {theirs}: the script does not set "
    "up the same way twice",
    cause="The process groups that the script makes depend on something that a newcomer does not have.",
    remedy="Make the same process groups in the same order on every start.",
)
RESULT_OF_ANOTHER = Message(
    "US4510",
    "the result of the transaction at {place} is the one of another rank",
    cause="What this transaction had returned on the lost rank is not known, so its newcomer was given the result of another rank.",
    remedy="If results differ from rank to rank and matter, let the transaction return numbers or small tensors, which are handed over.",
)
OF_ANOTHER_RANK = Message(
    "US4511",
    "{what} is what another rank had",
    cause="A name of the script is not registered and was not handed over, so the newcomer has the value of another rank.",
    remedy="If it differs from rank to rank and matters, put it into job.state.",
)
NOT_SET = Message(
    "US4512",
    "{name} of the script could not be set to what the others have",
    cause="A name that the script changes and has not registered is different on the newcomer, and cannot be set from outside.",
    remedy="If it matters, register it, or put it into job.state.",
)
LARGE_RESULT = Message(
    "US4513",
    "a large result of the set-up differs here and is not registered: {what}",
    cause="A collective of the set-up has given a large tensor. Only its digest is kept for newcomers, and what the newcomer computed in "
    "its place differs.",
    remedy="Register the tensor with job.register.",
)
CHANGE_LOST = Message(
    "US4514",
    f"{_BEHIND}if it changed it behind transaction {{transaction}}, that change is lost",
    cause="The rank changes something after its vote, and was lost before it handed that over.",
    remedy="Change it before optimizer.step if no change may be lost.",
)
CHANGE_RUN_AGAIN = Message(
    "US4515",
    f"{_BEHIND}its newcomer has run the code behind transaction {{transaction}} once more, from what was handed over with that vote; what "
    f"that changes of "
    "what is registered is lost",
    cause="The rank changes something between two transactions, and was lost before it handed that over. The newcomer has run the code in "
    "between again.",
    remedy="Put changes of registered objects into a step or a section.",
)
PASSED_PLACE = Message(
    "US4520",
    "rank {rank}: this newcomer reached place {place}, behind {goal} where the job continues: the script does not run the same way twice",
    cause=f"{_TWICE} It has skipped a transaction that the others have run.",
    remedy=_SAME_SETUP,
)
SAVES = Message(
    "US4521",
    "rank {rank}: this newcomer comes by code that saves or copies {what} between transactions. It has not the state of that moment, and "
    "what it wrote would go over what this rank has saved there. Put it into a @job.section that every rank calls; what is given to a "
    "section as an argument is computed outside of it",
    cause="On its way to the place where the job goes on, a newcomer runs the code between transactions. There it would save state that it "
    "does not have yet.",
    remedy="Put the saving into a @job.section that every rank calls, and call state_dict() there, not among its arguments.",
)
REWRITES = Message(
    "US4522",
    "rank {rank}: this newcomer comes by code that writes {file} anew between transactions. Its rank has been there before, and what it "
    "has written would be lost. Append to the file, put this into a @job.section that every rank calls, or do it only if job.first_run",
    cause="On its way to the place where the job goes on, a newcomer runs the code between transactions. There it would overwrite a file "
    "of its rank.",
    remedy="Append to the file, write it in a @job.section, or only if job.first_run.",
)
AT_THE_END = Message(
    "US4523",
    "rank {rank}: this newcomer has come to the end of its script without passing the place where the job goes on, so it never got its "
    "rank's state: whatever it has written at its end is wrong. The script does not run the same way twice",
    cause=f"{_TWICE} It ended before it came to that place.",
    remedy=f"{_SAME_SETUP} Do not trust what this rank has written at its end.",
)
RESULT_NOT_GIVEN = Message(
    "US4524",
    "rank {rank}: the result of the transaction at {place} cannot be given to a newcomer; let it return numbers, strings, tensors or "
    "containers of them",
    cause="A transaction has returned an object that cannot be moved to another process, and the newcomer needs it on its way.",
    remedy="Let the transaction return numbers, strings, tensors or containers of them.",
)
STATE_NOWHERE = Message(
    "US4525",
    "rank {rank} held state that no surviving rank has ({count} entries, {entry} for one), and no copy of it exists. It would have been "
    "saved by a replica: one more rank with the same shard (HSDP), or not losing all replicas at once",
    cause="Large state is recovered from replicas, and this rank had none that is left.",
    remedy="Start again from a checkpoint. Give every shard a replica, on nodes that do not fail together.",
)
OTHER_COPY = Message(
    "US4526",
    "rank {rank}: the buddy copy is of transaction {transaction}, not of {wanted}",
    cause="The copy of a rank's own state that a buddy has kept is of another vote than the recovery needs.",
    remedy="Another spare tries. Report it if it repeats.",
)
DONORS_PARTED = Message(
    "US4527",
    "the survivors would not compute together any more: {different}",
    cause="A framework (DDP, FSDP2, a pipeline) is laid out differently on ranks that use it together.",
    remedy="Mend the difference that is named, and start again from a checkpoint.",
)
DOES_NOT_FIT = Message(
    "US4540",
    "in the first transaction after a recovery with a newcomer for {newcomers}, {found}. A newcomer computes something else than the rank "
    "that it has taken over, so this transaction is committed on no rank, and the job ends: another spare would do the same. Most likely a "
    "branch, a size or the layout of buckets depends on something that is not registered (job.register), or on what only the process that "
    "was lost had seen. What to do: take that away, start again from a checkpoint, and prove it with a drill (understudy drill) before the "
    "next loss",
    cause="Collectives of a newcomer and of the survivors do not fit. Without this check the library would hang or end processes.",
    remedy="Find the branch or size that depends on something that is not registered. Register it, prove it with `understudy drill`, and "
    "start from a checkpoint.",
)
UNLIKE_CALL = Message(
    "US4541",
    "{found}, as number {number} on {group}",
    cause="Ranks of one group issue different collectives at the same place.",
    remedy="See US4540.",
)
UNLIKE_MESSAGE = Message(
    "US4542",
    "{found}, as message {number} on {group} with tag {tag}",
    cause="A rank sends more than another one receives.",
    remedy="See US4540.",
)
VOTED_WITHOUT = Message(
    "US4543",
    "rank {rank} waits in {call} for rank {other}, which has come to its vote without it",
    cause="A rank waits for a collective or a message that another rank did not issue in this step.",
    remedy="See US4540.",
)
WAIT_FOR_EACH_OTHER = Message(
    "US4544",
    "{ranks} wait for each other: {calls}",
    cause="Ranks issue collectives or messages in an order in which none of them can go on.",
    remedy="See US4540, if the job ends. If it goes on, the ranks only could have waited for each other.",
)
WAITED = Message(
    "US4545",
    "rank {rank} has waited {seconds:g} s for rank {other} in {call}",
    cause="Another rank is late. It may compute for long, or wait for something outside.",
)
NOT_CHECKED = Message(
    "US4546",
    "the first transaction after the recovery is not checked any further: {why}",
    cause="Collectives are compared before they run in the first step after a recovery. Here this would make ranks wait that need not, so "
    "it was given up.",
)
JOB_ENDS = Message(
    "US4547",
    "{reason}; the job ends",
    cause="A newcomer cannot take over its rank, for the reason that is named, and no other newcomer would fare better.",
    remedy="Do what the reason says, and start again from a checkpoint.",
)
FRAMEWORKS_DIFFER = Message(
    "US4548",
    "rank {rank}: {difference}",
    cause="What steers the collectives of a framework (the buckets of DDP and the like) is not the same on this newcomer as on its donors.",
    remedy="Let every worker of a job set up its models in the same way. Another spare is tried.",
)

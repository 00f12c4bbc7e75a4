"""Losses of ranks and nodes, what has caused them, and failures of the script."""

from __future__ import annotations

from understudy.messages.base import Message

_WHO = "rank {rank} (worker {worker} on node {node})"
_WORKERS_LINES = "Read the last lines of this worker in the run directory."

KILLED = Message(
    "US4060",
    f"{_WHO} was killed: {{detail}}",
    cause="A signal from outside has ended the process: the kernel's memory killer, a person, or a scheduler. A spare takes the rank.",
    remedy="Nothing for the job. For SIGKILL look into the kernel log of the node, whether its memory was exhausted.",
)
CRASHED = Message(
    "US4061",
    f"{_WHO} crashed: {{detail}}",
    cause="The process has ended by a signal of its own, such as SIGSEGV or SIGABRT: a fault in native code, a driver, or the hardware. A "
    "spare takes the rank.",
    remedy=f"{_WORKERS_LINES} If the same rank or node crashes again, take the node out.",
)
EXITED = Message(
    "US4062",
    f"{_WHO} exited: {{detail}}",
    cause="The process has ended by itself, without an exception that Python has seen and before its script was through. A spare takes the "
    "rank.",
    remedy=f"{_WORKERS_LINES} Look for os._exit and for libraries that end the process.",
)
HUNG = Message(
    "US4063",
    f"{_WHO} hung: {{detail}}",
    cause="The rank has made no progress for longer than the limit, or has not done in time what a recovery needs. It was ended, and a "
    "spare takes the rank.",
    remedy="If the rank was only slow, raise the limits (--hang-limit, --setup-limit). Otherwise see in the run directory what it did.",
)
LOST_WITH_NODE = Message(
    "US4064",
    f"{_WHO} was lost with its node: {{detail}}",
    cause="The node does not answer any more, was started again, or was taken away. Its ranks go to spares on other nodes.",
    remedy="Look after the node. The job goes on if there are enough spares.",
)
GIVEN_UP = Message(
    "US4065",
    f"{_WHO} is given up: {{detail}}",
    cause="The rank was still on a drained node at the deadline of the drain, which asked to give up what is late.",
    remedy="Give a drain more time, or more spares elsewhere, if ranks should move first.",
)
NOT_VERIFIED = Message(
    "US4066",
    f"{_WHO} did not verify: {{detail}}",
    cause="The state that a newcomer has received is not the state that its donors hold, by digest. Another spare tries.",
    remedy="Nothing, if it happens once. If it repeats, suspect the memory of a donor's node or the network, or state that the script "
    "builds differently.",
)
HOLDS_OTHER_STATE = Message(
    "US4067",
    f"{_WHO} holds state that is not its replicas': {{detail}}",
    cause="Replicas must hold the same bits. Most of them, or a person, speak against this rank, so its worker is ended and a spare takes "
    "the rank.",
    remedy="Have the node checked: silent corruption comes from memory, from a processor or from an accelerator. The node is tainted for "
    "that.",
)
DEVICE_FAILED = Message(
    "US4069",
    f"the device of {_WHO} failed: {{detail}}",
    cause="An exception on this rank says that its device cannot go on: an uncorrectable memory error, a device that is gone, a disk that "
    "does not answer, or a kernel that was broken off. The rank left at once, without giving its state to others; a spare takes it. The "
    "same error at the same transaction on another device would be the script's, and ends the job.",
    remedy="Have the device that is named checked (`understudy check-node`, the kernel log). It is tainted until somebody says that it is "
    "trusted again.",
)
LOST = Message(
    "US4068",
    f"{_WHO} was lost: {{detail}}",
    cause="The worker of this rank is gone, for a reason that has no name of its own. A spare takes the rank.",
    remedy=_WORKERS_LINES,
)
NODE_LOST = Message(
    "US4070",
    "node {node} was lost: {detail}",
    cause="The agent of the node was silent for too long, or is gone for good. What ran there is lost for this job.",
    remedy="Look after the node or its network. If it comes back, the job uses it for spares again.",
)
NODE_LOST_EARLY = Message(
    "US4071",
    "node {node} was lost before training began: {detail}",
    cause="A node that the job needs for its ranks was lost before ranks were given out. Nothing else can take its place then, so the job "
    "ends.",
    remedy="Bring the node back or take another one, and start the job again.",
)
HOST_RESTARTED = Message(
    "US4072",
    "{node} was started anew",
    cause="The agent of this node has connected again and knows nothing of the workers that ran there: the host was booted again, so they "
    "are gone.",
    remedy="Find out why the host was booted.",
)
CLAIM_ENDED = Message(
    "US4073",
    "its claim has ended: {detail}",
    cause="The scheduler has taken back a node that it had given to this job as a floating spare.",
)
UNKNOWN_ASSIGNMENT = Message(
    "US4074",
    "it took rank {rank} from an orchestrator that was killed, and the journal knows nothing of that",
    cause="An orchestrator gave out a rank and was killed before it could write that down. No decision may rest on that, so the worker is "
    "replaced.",
)
DID_NOT_STOP = Message(
    "US4080",
    "did not stop within {seconds:g} s after the abort of its generation",
    cause="After a loss every survivor stops at its position. This one did not: it may sit in native code that nothing can interrupt.",
    remedy="If the step contains long uninterruptible work, raise the timeout `quiesce` (300 s, or --setup-limit if that is less).",
)
NOT_READY = Message(
    "US4081",
    "was not ready to take over within {seconds:g} s",
    cause="In a planned migration the spare runs the set-up of the script. That took longer than --setup-limit allows.",
    remedy="See what the spare printed, in the run directory. Raise --setup-limit if the set-up takes so long.",
)
NOT_VERIFIED_IN_TIME = Message(
    "US4082",
    "was not verified within {seconds:g} s",
    cause="A newcomer did not get through its set-up and the transfer of its state within --setup-limit.",
    remedy="See what it printed, in the run directory. Raise --setup-limit if the set-up or the transfer takes so long.",
)
DRAIN_DEADLINE = Message(
    "US4083",
    "its node is drained, and the deadline is over",
    cause="A person has drained the node with a deadline, and asked to give up what is still there then.",
)
LOST_AFTER_FINISH = Message(
    "US4084",
    "lost after it had finished",
    cause="The script of this rank had ended, and its worker was lost while it waited for the other ranks. They still need the rank.",
)
FINISHED_AND_NEEDED = Message(
    "US4085",
    "{workers} was lost after it had finished, and is needed: {why}",
    cause="A worker whose script had ended is gone, and the other ranks cannot finish without that rank. So it is taken over like any lost "
    "rank.",
)
COMMUNICATION_BROKE = Message(
    "US4086",
    "communication broke and no worker was lost: {found}",
    cause="A collective has failed on a rank, and no lost worker or node explains it: usually a fault of the network. All ranks recover in "
    "place.",
    remedy="Nothing, if it happens once. If it repeats, check the network between the nodes that are named.",
)
NO_BOUNDARY = Message(
    "US4087",
    "no boundary was reached within {seconds:g} s",
    cause="For a planned migration all ranks stop between two steps. They did not within the timeout `quiesce`, so the migration is called "
    "off.",
    remedy="If one step takes longer than that, raise `quiesce`, and ask for the migration again.",
)
SCRIPT_FAILED = Message(
    "US4090",
    "rank {rank} ({worker} on node {node}) failed at step {step}: {report}",
    cause="The script has raised an exception on this rank, or Understudy has refused what the script does. A spare would meet the same, "
    "so the job ends.",
    remedy="Read the exception: if it begins with a code, explain that one. Mend the script and start the job again.",
)
WORKER_FAILED = Message(
    "US4091",
    "worker {worker} failed at step {step}: {report}",
    cause="A worker without a rank has failed in a way that every other one would, too: for example its torch cannot be used.",
    remedy="Read the exception: if it begins with a code, explain that one.",
)
SAME_ON_ANOTHER_DEVICE = Message(
    "US4093",
    "rank {rank} ({worker} on node {node}) failed at step {step} with {error}, as {before} did at the same transaction on another device: "
    "this is the script's own fault, and both devices are trusted again: {report}",
    cause="Two devices have raised the same error at the same place of the training. A fault of the hardware does not do that; a kernel "
    "that reads or writes where it must not does.",
    remedy="Read the exception. For an illegal access run the script with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to see the "
    "kernel.",
)
SEVERAL_DEVICES = Message(
    "US4094",
    "the devices of several ranks of node {node} failed within a step: {reason}. The node itself is not trusted any more",
    cause="Two ranks of one node have lost their devices at nearly the same time. That points to what they share: the driver, a switch, "
    "power, or a disk.",
    remedy="Look into the kernel log of the node. Trust it again with `understudy taint --node NODE --remove` when it is mended.",
)
STOPPED = Message(
    "US4092",
    "stopped: {reason}",
    cause="Somebody has asked to end the job: by `understudy stop`, a signal to `understudy run`, the HTTP interface, or a scheduler.",
)
SURVIVORS_CRASH = Message(
    "US4095",
    "{crashes}. These were healthy survivors, and all of them crashed at transaction {transaction}, right after a recovery (newcomers "
    "since: {newcomers}). Most likely a newcomer's collective does not fit the survivors': what the script or a framework computes (the "
    "layout of buckets, the size of a tensor, a branch) is not the same on a newcomer, and the library below ends whoever hears that. More "
    "spares would be used up in the same way, and all ranks could end as newcomers with wrong state. What to do: compare the last lines of "
    "these workers and of the newcomers in workers/, start again from a checkpoint (with --spares 0 the next loss ends the job instead), "
    "and report what the script uses, because Understudy should have noticed before",
    cause="Survivors of a recovery have ended by signals of their own in the first transaction after it. A mismatch between the "
    "collectives of a newcomer and theirs is the likely cause, since Gloo ends a process that receives an unexpected size.",
    remedy="Compare the last lines of these workers and of the newcomers in the run directory. Find the branch or size that depends on "
    "state which is not registered, register it, prove it with `understudy drill`, and start from a checkpoint.",
)

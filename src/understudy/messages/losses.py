"""Losses of ranks and nodes, their causes, and failures of the script."""

from __future__ import annotations

from understudy.messages.base import Message

_WHO = "rank {rank} (worker {worker} on node {node})"
_WORKERS_LINES = "Read the last lines of this worker in the run directory."

KILLED = Message(
    "US4060",
    f"{_WHO} was killed: {{detail}}",
    cause="A signal from outside ended the process: from the kernel's OOM killer, a person, or a scheduler. A spare takes over the rank.",
    remedy="Check the node's kernel log for an out-of-memory kill if the signal was SIGKILL. The job needs no action.",
)
CRASHED = Message(
    "US4061",
    f"{_WHO} crashed: {{detail}}",
    cause="A signal raised in the process itself, such as SIGSEGV or SIGABRT, ended it: a fault in native code, a driver, or the hardware. "
    "A spare takes over the rank.",
    remedy=f"{_WORKERS_LINES} If the same rank or node crashes again, remove the node from the job.",
)
EXITED = Message(
    "US4062",
    f"{_WHO} exited: {{detail}}",
    cause="The process ended on its own, without an exception that Python saw and before its script was complete. A spare takes over the "
    "rank.",
    remedy=f"{_WORKERS_LINES} Look for os._exit and for libraries that end the process.",
)
HUNG = Message(
    "US4063",
    f"{_WHO} hung: {{detail}}",
    cause="The rank made no progress for longer than the limit, or did not complete a part of a recovery in time. Its worker was ended, "
    "and a spare takes over the rank.",
    remedy="If the rank was only slow, raise the limits (--hang-limit, --setup-limit). Otherwise read the worker's output in the run "
    "directory.",
)
LOST_WITH_NODE = Message(
    "US4064",
    f"{_WHO} was lost with its node: {{detail}}",
    cause="The node no longer responds, was restarted, or was taken away. Its ranks go to spares on other nodes.",
    remedy="Check the node. The job continues if there are enough spares.",
)
GIVEN_UP = Message(
    "US4065",
    f"{_WHO} was given up: {{detail}}",
    cause="The rank was still on a drained node at the deadline of the drain, and the drain was requested with the option to give up late "
    "ranks.",
    remedy="Give the drain more time, or start more spares on other nodes, if ranks are to move before the deadline.",
)
NOT_VERIFIED = Message(
    "US4066",
    f"{_WHO} failed verification: {{detail}}",
    cause="The digests of the state that a newcomer received differ from those of its donors. Another spare is tried.",
    remedy="Ignore this if it happens once. If it repeats, suspect the memory of a donor's node, the network, or state that the script "
    "builds differently each time.",
)
HOLDS_OTHER_STATE = Message(
    "US4067",
    f"{_WHO} holds state that differs from that of its replicas: {{detail}}",
    cause="Replicas must hold the same bits. The majority of the replicas, or a person, decided against this rank, so its worker is ended "
    "and a spare takes over the rank.",
    remedy="Have the node checked: silent corruption comes from memory, a processor or an accelerator. The node is tainted because of it.",
)
DEVICE_FAILED = Message(
    "US4069",
    f"the device of {_WHO} failed: {{detail}}",
    cause="An exception on this rank shows that its device cannot continue: an uncorrectable memory error, a missing device, a disk that "
    "does not respond, or an aborted kernel. The rank left at once, without giving its state to others, and a spare takes it over. If the "
    "same error occurs at the same transaction on another device, it counts as the script's fault, and ends the job.",
    remedy="Have the device that is named checked (`understudy check-node`, the kernel log). It stays tainted until the taint is removed "
    "(`understudy taint --remove`).",
)
LOST = Message(
    "US4068",
    f"{_WHO} was lost: {{detail}}",
    cause="The worker of this rank is gone, for a reason that has no code. A spare takes over the rank.",
    remedy=_WORKERS_LINES,
)
NODE_LOST = Message(
    "US4070",
    "node {node} was lost: {detail}",
    cause="The agent of the node was silent for too long, or is gone for good. All that ran there is lost for this job.",
    remedy="Check the node and its network. If it comes back, the job uses it for spares again.",
)
NODE_LOST_EARLY = Message(
    "US4071",
    "node {node} was lost before training began: {detail}",
    cause="A node that the job needs for its ranks was lost before ranks were assigned. No other node can replace it at that point, so the "
    "job ends.",
    remedy="Bring the node back or use another one, and start the job again.",
)
HOST_RESTARTED = Message(
    "US4072",
    "{node} was restarted",
    cause="The agent of this node has reconnected and does not know the workers that ran there: the host was rebooted, so they are gone.",
    remedy="Find out why the host was rebooted.",
)
CLAIM_ENDED = Message(
    "US4073",
    "its claim ended: {detail}",
    cause="The scheduler took back a node that it had assigned to this job as a floating spare.",
)
UNKNOWN_ASSIGNMENT = Message(
    "US4074",
    "it took rank {rank} from an orchestrator that was killed, and the journal has no record of it",
    cause="An orchestrator assigned a rank and was killed before it could write that to the journal. No decision may depend on an "
    "unrecorded event, so the worker is replaced.",
)
DID_NOT_STOP = Message(
    "US4080",
    "did not stop within {seconds:g} s after the abort of its generation",
    cause="After a loss every survivor stops at its position. This one did not: it may be in native code that cannot be interrupted.",
    remedy="If the step contains long work that cannot be interrupted, raise the timeout `quiesce` (300 s, or --setup-limit if that is "
    "less).",
)
NOT_READY = Message(
    "US4081",
    "was not ready to take over within {seconds:g} s",
    cause="In a planned migration the spare runs the setup of the script. That took longer than --setup-limit.",
    remedy="Read the spare's output in the run directory. Raise --setup-limit if the setup needs that long.",
)
NOT_VERIFIED_IN_TIME = Message(
    "US4082",
    "was not verified within {seconds:g} s",
    cause="A newcomer did not complete its setup and the transfer of its state within --setup-limit.",
    remedy="Read its output in the run directory. Raise --setup-limit if the setup or the transfer needs that long.",
)
DRAIN_DEADLINE = Message(
    "US4083",
    "its node is being drained, and the deadline has passed",
    cause="The node was drained with a deadline, with the option to give up the ranks that are still there when it passes.",
)
LOST_AFTER_FINISH = Message(
    "US4084",
    "lost after it had finished",
    cause="The script of this rank had ended, and its worker was lost while it waited for the other ranks. Those still need the rank.",
)
FINISHED_AND_NEEDED = Message(
    "US4085",
    "{workers} was lost after it had finished, and is still needed: {why}",
    cause="A worker whose script had ended is gone, and the other ranks cannot finish without its rank. So a spare takes over the rank, as "
    "after any loss.",
)
COMMUNICATION_BROKE = Message(
    "US4086",
    "communication failed although no worker was lost: {found}",
    cause="A collective failed on a rank, and no lost worker or node explains it. The usual cause is a network fault. All ranks recover in "
    "place.",
    remedy="Ignore this if it happens once. If it repeats, check the network between the nodes that are named.",
)
NO_BOUNDARY = Message(
    "US4087",
    "no step boundary was reached within {seconds:g} s",
    cause="For a planned migration all ranks stop between two steps. They did not do so within the timeout `quiesce`, so the migration is "
    "cancelled.",
    remedy="If one step takes longer than that, raise `quiesce`, and request the migration again.",
)
SCRIPT_FAILED = Message(
    "US4090",
    "rank {rank} ({worker} on node {node}) failed at step {step}: {report}",
    cause="The script raised an exception on this rank, or Understudy refused something that the script does. A spare would fail in the "
    "same way, so the job ends.",
    remedy="Read the exception. If it begins with a code, run `understudy explain` with that code. Fix the script and start the job again.",
)
WORKER_FAILED = Message(
    "US4091",
    "worker {worker} failed at step {step}: {report}",
    cause="A worker without a rank failed in a way in which every other one would fail, too: for example because torch cannot be used.",
    remedy="Read the exception. If it begins with a code, run `understudy explain` with that code.",
)
SAME_ON_ANOTHER_DEVICE = Message(
    "US4093",
    "rank {rank} ({worker} on node {node}) failed at step {step} with {error}, as {before} did at the same transaction on another device: "
    "the fault is the script's, and both devices are trusted again: {report}",
    cause="Two devices raised the same error at the same point of the training. A hardware fault does not do that; a kernel that accesses "
    "memory out of bounds does.",
    remedy="Read the exception. For an illegal access, run the script with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer to find the "
    "kernel.",
)
SEVERAL_DEVICES = Message(
    "US4094",
    "the devices of several ranks of node {node} failed within a step: {reason}. The whole node is no longer trusted",
    cause="Two ranks of one node lost their devices at nearly the same time. That points to something that they share: the driver, a "
    "switch, power, or a disk.",
    remedy="Check the kernel log of the node. After a repair, trust the node again with `understudy taint --node NODE --remove`.",
)
STOPPED = Message(
    "US4092",
    "stopped: {reason}",
    cause="A request ended the job: `understudy stop`, a signal to `understudy run`, the HTTP interface, or a scheduler.",
)
SURVIVORS_CRASH = Message(
    "US4095",
    "{crashes}. These were healthy survivors, and all of them crashed at transaction {transaction}, right after a recovery (newcomers "
    "since: {newcomers}). Most likely a newcomer's collective does not match the survivors': something that the script or a framework "
    "computes (the layout of buckets, the size of a tensor, a branch) differs on a newcomer, and the communication library ends each "
    "process that receives the mismatch. More spares would be used up in the same way, and all ranks could end as newcomers with wrong "
    "state. Compare the last lines of these workers and of the newcomers in workers/, start again from a checkpoint (with --spares 0 the "
    "next loss ends the job instead), and report which features the script uses, because Understudy should have detected this earlier",
    cause="Survivors of a recovery were ended by signals raised in their own processes in the first transaction after it. The likely cause "
    "is a mismatch between a newcomer's collectives and theirs, since Gloo ends a process that receives an unexpected size.",
    remedy="Compare the last lines of these workers and of the newcomers in the run directory. Find the branch or size that depends on "
    "unregistered state, register that state, verify with `understudy drill`, and start from a checkpoint.",
)

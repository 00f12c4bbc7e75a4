"""Ranks that leave a node: migrations, taints, drains, checks of nodes, and returns to the first node."""

from __future__ import annotations

from understudy.messages.base import Message

_NOWHERE = "{ranks} would have no worker to move to: "
_NO_WARM_SPARE = "no spare is warm on another trusted node"

NO_SUCH_RANK = Message(
    "US4200",
    "there is no rank {rank}: this job has ranks 0 to {last}",
    cause="A migration or a drill was requested for a rank that the job does not have.",
    remedy="Use one of the ranks that `understudy status` lists.",
)
JOB_OVER = Message(
    "US4201",
    "the job is over",
    cause="The job has ended, so nothing can be moved, drilled or drained in it.",
)
ALREADY_MIGRATING = Message(
    "US4202",
    "rank {rank} is already migrating",
    cause="One rank moves at a time, and one is already moving.",
    remedy="Wait until it has moved (`understudy status`), and request the migration again.",
)
NOT_SETTLED = Message(
    "US4203",
    "the job is not training normally: wait until every rank has committed a step",
    cause="The job is starting, or is recovering from a loss. A rank can be moved or drilled only when every rank has committed a step in "
    "the current generation.",
    remedy="Try again when the recovery is over (`understudy status`).",
)
ABOUT_TO_FINISH = Message(
    "US4204",
    "the job is about to finish",
    cause="The script of a rank has ended. The others will end soon, and a migration would delay them.",
)
ALL_PREPARED = Message(
    "US4205",
    "every spare is prepared for another rank (see --prepare)",
    cause="A prepared spare has run the setup of one rank and cannot take over another one. All warm spares are prepared for other ranks.",
    remedy="Start the job with more spares than are prepared (--spares, --prepare).",
)
NO_SPARE_WARM = Message(
    "US4206",
    "no spare is warm yet: try again shortly",
    cause="A spare is starting, and has not yet imported what the script needs.",
    remedy="Try again in a few seconds.",
)
NO_SPARE = Message(
    "US4207",
    "no spare is left (see --spares)",
    cause="The job has no spare that could take over the rank, and none is starting.",
    remedy="Start the job with more spares (--spares).",
)
REFUSED = Message(
    "US4208",
    "rank {rank} cannot migrate: {why}",
    cause="A migration was requested that is not possible now.",
    remedy="Request the migration again when the reason in the message no longer applies.",
)
MIGRATES = Message(
    "US4209",
    "rank {rank} migrates from {leaver} to {newcomer}, which is setting up; training continues",
    cause="A migration was requested, by a person or because a node is not trusted. The rank moves at a step boundary when the spare is "
    "ready.",
)
NO_LONGER = Message(
    "US4210",
    "rank {rank} no longer migrates: the job is about to finish",
    cause="When the spare was ready, the script of a rank had already ended.",
)
ASKED = Message(
    "US4211",
    "a migration was requested",
    cause="The migration was requested without a reason.",
)
MIGRATING_ALREADY = Message(
    "US4212",
    "rank {rank} was migrating already, to {newcomer}",
    cause="The worker of a rank was lost while a spare was already setting up for this rank. The spare takes it over.",
)
CALLED_OFF = Message(
    "US4213",
    "the migration of rank {rank} was cancelled: {why}",
    cause="A loss or another disturbance came first. The rank stays where it was.",
    remedy="Request the migration again if it is still wanted.",
)
TAINTED = Message(
    "US4220",
    "node {node} is tainted: {reason}",
    cause="A detector, a check, an alert or a person marked this node as not trusted. It gets no new ranks or spares, and ranks may leave "
    "it.",
    remedy="Check the node. To trust it again, run `understudy taint --node NODE --remove`.",
)
DEVICE_FAILED = Message(
    "US4228",
    "it failed under rank {rank}: {error}",
    cause="An exception on a rank shows that its device has failed.",
    remedy="Have the device checked. To trust it again, run `understudy taint --node NODE --remove`.",
)
NOT_THERE = Message(
    "US4232",
    "node {node} is not trusted: {why}",
    cause="A migration was requested to a node or a device that is tainted or lost.",
    remedy="Choose another one, or remove the taint with `understudy taint --remove`.",
)
NO_SUCH_DEVICE = Message(
    "US4233",
    "{device} of node {node} is not known; known devices: {known}",
    cause="A migration was requested to a device that no worker has reported, and whose name is not an index (gpu3).",
    remedy="Use one of the names that are listed, or an index.",
)
DEVICE_TAKEN = Message(
    "US4234",
    "rank {rank} is on {device} of node {node}",
    cause="A migration was requested to a device on which another rank computes.",
    remedy="Choose another device, or move that rank first.",
)
NO_SPARE_THERE = Message(
    "US4235",
    "no spare is warm on node {node} that could take over the rank",
    cause="A migration was requested to a node on which no spare is warm, or where all warm spares are prepared for other ranks or "
    "devices.",
    remedy="Wait for a spare, or request the migration without a node.",
)
DEVICE_TAINTED = Message(
    "US4229",
    "{device} of node {node} is tainted: {reason}",
    cause="A detector, an exception on a rank or a person marked this device as not trusted. No new rank gets it, and the rank on it may "
    "leave. The node's other devices stay trusted.",
    remedy="Check the device. To trust it again, run `understudy taint --node NODE --device DEVICE --remove`.",
)
DEVICE_TRUSTED_AGAIN = Message(
    "US4230",
    "{device} of node {node} is trusted again",
    cause="The evidence against the device has ended, or a person removed the taint.",
)
DEVICE_NOT_TRUSTED = Message(
    "US4231",
    "its device {device} is no longer trusted",
    cause="A spare had set up on a device that has since been tainted, so another spare is started.",
)
DRAINED = Message(
    "US4221",
    "node {node} is being drained: {reason}",
    cause="A drain of this node was requested. Ranks that have a warm spare on another node move together; the others follow when there "
    "are more spares.",
    remedy="To cancel the drain, run `understudy undrain`.",
)
TRUSTED_AGAIN = Message(
    "US4222",
    "node {node} is trusted again",
    cause="The last taint of this node has ended, a person removed it, or the node passed its check.",
)
RETURNS = Message(
    "US4223",
    "node {node}, its first node, is trusted again",
    cause="A rank that had left its first node returns, because that node has been trusted for as long as the job requires.",
)
TO_BE_CHECKED = Message(
    "US4224",
    "it must pass its check first (understudy check-node)",
    cause="The last taint of this node has ended, and this job requires a check before it trusts a node again.",
)
CHECKED_FIRST = Message(
    "US4225",
    "node {node} will be checked before it is trusted again",
    cause="The last taint of this node has ended, and this job requires a check before it trusts a node again. The node's agent is running "
    "the check.",
)
CHECK_FAILED = Message(
    "US4226",
    "its check failed: {detail}",
    cause="The node had to pass a check before it could be trusted again, and failed it.",
    remedy="Repair the node. The check is repeated every few minutes. To clear the taint without a check, run `understudy taint`.",
)
NOT_TRUSTED = Message(
    "US4227",
    "node {node} is not trusted: its check failed: {detail}. It will be checked again in {minutes:g} minutes",
    cause="The node had to pass a check before it could be trusted again, and failed it.",
    remedy="Repair the node, and run `understudy check-node` there for the details.",
)
NO_SUCH_NODE = Message(
    "US4240",
    "the job has no node {node} (it has {known})",
    cause="A drain was requested for a node that this job does not have.",
    remedy="Use one of the nodes that are listed.",
)
NODE_RELEASED = Message(
    "US4241",
    "node {node} was returned to the scheduler",
    cause="The node no longer belongs to this job, so there is nothing to drain.",
)
NOWHERE_TO_GO = Message(
    "US4242",
    f"{_NOWHERE}the job has no spare on another trusted node (see --spares)",
    cause="The ranks of a node that is to be drained need spares on other nodes, and there are none.",
    remedy="Start the job with spares on other nodes (--spares), or stop the job.",
)
TOO_FEW_SPARES = Message(
    "US4243",
    f"{_NOWHERE}the job has {{room}} spare(s) on other trusted nodes, and starts no new ones",
    cause="The job does not replace spares (--no-replenish), and has fewer spares on other nodes than ranks would have to move.",
    remedy="Start the job with more spares, or without --no-replenish.",
)
TOO_FEW_PLACES = Message(
    "US4251",
    f"{_NOWHERE}the other trusted nodes have places for {{room}} of them",
    cause="A spare node takes no more ranks than it has spares, because each rank needs its own accelerator.",
    remedy="Drain fewer nodes at a time, or start the job with more spares or spare nodes (--spares, --spare-nodes).",
)
DRAIN_DONE = Message(
    "US4244",
    "node {node} is drained: nothing of this job is left on it",
    cause="All ranks and spares of this job have left the node.",
    remedy="Switch the node off if no other job needs it.",
)
GIVEN_BACK = Message(
    "US4245",
    "node {node} is returned to the scheduler: its ranks have left it",
    cause="A scheduler assigned the node, no rank is left on it, and the job is to leave it for good.",
)
MOVED_IN_VAIN = Message(
    "US4246",
    "its move failed twice: request it once more",
    cause="A rank had to leave the node, and the spare that was to take it over did not become ready, twice.",
    remedy="Read the output of these spares in the run directory. Request the drain again to retry.",
)
NO_SPARE_ELSEWHERE = Message(
    "US4247",
    _NO_WARM_SPARE,
    cause="A rank is waiting to leave a drained node. Spares on other nodes are starting, or there are none.",
    remedy="Wait for a spare to start. If none does, the job has too few spares.",
)
NODE_ASKED_FOR = Message(
    "US4248",
    f"{_NO_WARM_SPARE}: one more is requested",
    cause="A rank is waiting to leave a drained node, and a node for it was requested from the scheduler.",
    remedy="Wait until the scheduler assigns a node.",
)
OVERDUE_GIVEN_UP = Message(
    "US4249",
    "the drain of node {node} is past its deadline, and {ranks} {are} given up",
    cause="Ranks were still on the node at the deadline of its drain, which was requested with the option to give them up. Spares take "
    "them over, as after a loss.",
)
OVERDUE_LEFT = Message(
    "US4250",
    "the drain of node {node} is past its deadline, and {ranks} {are} left there",
    cause="Ranks were still on the node at the deadline of its drain, which was requested with the option to leave them there.",
    remedy="Request the drain again with more time, or find out why the ranks did not move.",
)

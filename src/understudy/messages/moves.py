"""Ranks that leave a node: migrations, taints, drains, checks of nodes, and ways home."""

from __future__ import annotations

from understudy.messages.base import Message

_NOWHERE = "{ranks} would have nowhere to go: "
_NO_WARM_SPARE = "no spare is warm on another node that is trusted"

NO_SUCH_RANK = Message(
    "US4200",
    "there is no rank {rank}: this job has ranks 0 to {last}",
    cause="A migration or a drill was asked for with a rank that the job does not have.",
    remedy="Give one of the ranks that `understudy status` lists.",
)
JOB_OVER = Message(
    "US4201",
    "the job is over",
    cause="The job has ended, so nothing can be moved, drilled or drained in it.",
)
ALREADY_MIGRATING = Message(
    "US4202",
    "rank {rank} is already migrating",
    cause="One rank moves at a time, and one is on its way.",
    remedy="Wait until it has moved (`understudy status`), and ask again.",
)
NOT_SETTLED = Message(
    "US4203",
    "the job is not in plain training: wait until every rank has committed a step",
    cause="The job starts, or recovers from a loss. A rank can be moved or drilled only when every rank has committed a step in the "
    "present generation.",
    remedy="Ask again when the recovery is over (`understudy status`).",
)
ABOUT_TO_FINISH = Message(
    "US4204",
    "the job is about to finish",
    cause="The script of a rank has ended. The others end soon, and a rank that moves would delay them.",
)
ALL_PREPARED = Message(
    "US4205",
    "every spare is prepared for another rank (see --prepare)",
    cause="A prepared spare has run the set-up of one rank and can take no other. All warm spares are prepared for other ranks.",
    remedy="Start the job with more spares than are prepared (--spares, --prepare).",
)
NO_SPARE_WARM = Message(
    "US4206",
    "no spare is warm yet: try again shortly",
    cause="A spare starts, and has not imported yet what the script needs.",
    remedy="Ask again in a few seconds.",
)
NO_SPARE = Message(
    "US4207",
    "no spare is left (see --spares)",
    cause="The job has no spare that could take the rank, and none starts.",
    remedy="Start the job with more spares (--spares).",
)
REFUSED = Message(
    "US4208",
    "rank {rank} does not migrate: {why}",
    cause="A migration was asked for that is not possible now.",
    remedy="Follow the reason that is given, and ask again.",
)
MIGRATES = Message(
    "US4209",
    "rank {rank} migrates from {leaver} to {newcomer}, which sets up now; training goes on",
    cause="A migration was asked for, by a person or because a node is not trusted. The rank moves at a step boundary when the spare is "
    "ready.",
)
NO_LONGER = Message(
    "US4210",
    "rank {rank} does not migrate any more: the job is about to finish",
    cause="The spare was ready when the script of a rank had ended already.",
)
ASKED = Message(
    "US4211",
    "a migration was asked for",
    cause="Somebody has asked for it without a reason.",
)
MIGRATING_ALREADY = Message(
    "US4212",
    "rank {rank} was migrating already, to {newcomer}",
    cause="The worker of a rank was lost while a spare set up for this rank anyway. The spare takes it.",
)
CALLED_OFF = Message(
    "US4213",
    "the migration of rank {rank} was called off: {why}",
    cause="A loss or another disturbance came first. The rank stays where it was.",
    remedy="Ask for the migration again if it is still wanted.",
)
TAINTED = Message(
    "US4220",
    "node {node} is tainted: {reason}",
    cause="A detector, a check, an alert or a person does not trust this node. It gets no new ranks and spares, and ranks may leave it.",
    remedy="Look after the node. `understudy taint --node NODE --remove` says that it is to be trusted again.",
)
DEVICE_FAILED = Message(
    "US4228",
    "it failed under rank {rank}: {error}",
    cause="An exception on a rank says that its device has failed.",
    remedy="Have the device checked, and say that it is trusted again with `understudy taint --node NODE --remove`.",
)
NOT_THERE = Message(
    "US4232",
    "node {node} is not trusted: {why}",
    cause="A rank was to move to a node or a device that is tainted or lost.",
    remedy="Choose another one, or say that it is to be trusted with `understudy taint --remove`.",
)
NO_SUCH_DEVICE = Message(
    "US4233",
    "{device} of node {node} is not known; known devices: {known}",
    cause="A rank was to move to a device that no worker has reported, and whose name is not an index (gpu3).",
    remedy="Give one of the names that are listed, or an index.",
)
DEVICE_TAKEN = Message(
    "US4234",
    "rank {rank} is on {device} of node {node}",
    cause="A rank was to move to a device on which another rank computes.",
    remedy="Choose another device, or move that rank first.",
)
NO_SPARE_THERE = Message(
    "US4235",
    "no spare is warm on node {node} that could take the rank",
    cause="A rank was to move to a node on which no spare is warm, or only such as are prepared for other ranks or devices.",
    remedy="Wait for one, or leave out where the rank is to go.",
)
DEVICE_TAINTED = Message(
    "US4229",
    "{device} of node {node} is tainted: {reason}",
    cause="A detector, an exception on a rank or a person does not trust this device. No new rank gets it, and its own may leave it. The "
    "node's other devices are trusted as before.",
    remedy="Look after the device. `understudy taint --node NODE --device DEVICE --remove` says that it is to be trusted again.",
)
DEVICE_TRUSTED_AGAIN = Message(
    "US4230",
    "{device} of node {node} is trusted again",
    cause="What spoke against the device has ended, or a person says that it is to be trusted.",
)
DEVICE_NOT_TRUSTED = Message(
    "US4231",
    "its device {device} is not trusted any more",
    cause="A spare had set up on a device that is tainted now, so another one is started.",
)
DRAINED = Message(
    "US4221",
    "node {node} is drained: {reason}",
    cause="A person has asked to empty this node. Its ranks move to spares on other nodes, one after the other.",
    remedy="`understudy undrain` ends the drain.",
)
TRUSTED_AGAIN = Message(
    "US4222",
    "node {node} is trusted again",
    cause="The last taint of this node has ended, a person has said so, or it has passed its check.",
)
RETURNS = Message(
    "US4223",
    "node {node}, where it was at first, is trusted again",
    cause="A rank that had left its first node goes back, because that node was trusted for as long as the job asks for.",
)
TO_BE_CHECKED = Message(
    "US4224",
    "it is to pass its check first (understudy check-node)",
    cause="The last taint of this node has ended, and this job trusts a node again only after a check.",
)
CHECKED_FIRST = Message(
    "US4225",
    "node {node} is checked before it is trusted again",
    cause="The last taint of this node has ended, and this job trusts a node again only after a check. Its agent runs the check now.",
)
CHECK_FAILED = Message(
    "US4226",
    "its check has failed: {detail}",
    cause="The node was checked before it should be trusted again, and did not pass.",
    remedy="Repair the node. The check is repeated every few minutes; `understudy taint` can clear the taint without it.",
)
NOT_TRUSTED = Message(
    "US4227",
    "node {node} is not trusted: its check has failed: {detail}. It is checked again in {minutes:g} minutes",
    cause="The node was checked before it should be trusted again, and did not pass.",
    remedy="Repair the node, and run `understudy check-node` there for the details.",
)
NO_SUCH_NODE = Message(
    "US4240",
    "the job has no node {node} (it has {known})",
    cause="A drain was asked for with the name of a node that this job does not have.",
    remedy="Give one of the nodes that are listed.",
)
NODE_RELEASED = Message(
    "US4241",
    "node {node} was given back to the scheduler",
    cause="The node does not belong to this job any more, so there is nothing to drain.",
)
NOWHERE_TO_GO = Message(
    "US4242",
    f"{_NOWHERE}the job has no spare on another node that is trusted (see --spares)",
    cause="The ranks of a node that is to be drained need spares on other nodes. There are none.",
    remedy="Start the job with spares on other nodes (--spares), or stop the job.",
)
TOO_FEW_SPARES = Message(
    "US4243",
    f"{_NOWHERE}the job has {{room}} spare(s) on other nodes that are trusted, and starts no new ones",
    cause="The job does not replace spares (--no-replenish), and has fewer on other nodes than ranks would have to leave.",
    remedy="Start the job with more spares, or without --no-replenish.",
)
TOO_FEW_PLACES = Message(
    "US4251",
    f"{_NOWHERE}the other nodes that are trusted have places for {{room}} of them",
    cause="A node of spares takes no more ranks than it has spares: each needs an accelerator of its own.",
    remedy="Drain fewer nodes at a time, or start the job with more spares or spare nodes (--spares, --spare-nodes).",
)
DRAIN_DONE = Message(
    "US4244",
    "node {node} is drained: nothing of this job is there any more",
    cause="All ranks and spares of this job have left the node.",
    remedy="As far as this job goes, the node can be switched off.",
)
GIVEN_BACK = Message(
    "US4245",
    "node {node} is given back to the scheduler: its ranks have left it",
    cause="The node came from a scheduler and is to be left for good, and no rank is there any more.",
)
MOVED_IN_VAIN = Message(
    "US4246",
    "its move has failed twice: ask for it once more",
    cause="A rank should leave the node, and twice the spare that was to take it did not become ready.",
    remedy="Read what these spares printed, in the run directory. Ask for the drain again to try once more.",
)
NO_SPARE_ELSEWHERE = Message(
    "US4247",
    _NO_WARM_SPARE,
    cause="A rank waits to leave a drained node. Spares on other nodes start, or there are none.",
    remedy="Wait for a spare to start; if none does, the job has too few spares.",
)
NODE_ASKED_FOR = Message(
    "US4248",
    f"{_NO_WARM_SPARE}: one more is asked for",
    cause="A rank waits to leave a drained node, and a node for it was asked for from the scheduler.",
    remedy="Wait until the scheduler gives a node.",
)
OVERDUE_GIVEN_UP = Message(
    "US4249",
    "the drain of node {node} is past its deadline, and {ranks} {are} given up",
    cause="Ranks were still on the node at the deadline of its drain, which asked to give them up. Spares take them as after a loss.",
)
OVERDUE_LEFT = Message(
    "US4250",
    "the drain of node {node} is past its deadline, and {ranks} {are} left there",
    cause="Ranks were still on the node at the deadline of its drain, which asked to leave them then.",
    remedy="Ask for the drain again with more time, or look for what has hindered it.",
)

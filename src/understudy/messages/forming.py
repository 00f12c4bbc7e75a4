"""The start of a job, before it trains: its ranks, spares and limits, its first nodes and workers."""

from __future__ import annotations

from understudy.messages.base import Message

WORLD_SIZE = Message(
    "US4000",
    "world_size {world_size} is not nodes {nodes} x workers_per_node {workers_per_node}",
    cause="Every node of a job has the same number of ranks, so the total is a product. These three numbers contradict each other.",
    remedy="Make the numbers match: world_size must be nodes times workers_per_node, and at least 1.",
)
SPARES_NEGATIVE = Message(
    "US4001",
    "spares must not be negative: {spares}",
    cause="The job was requested with a negative number of spares.",
    remedy="Request 0 spares or more (--spares).",
)
SPARE_NODES = Message(
    "US4002",
    "{spare_nodes} spare nodes with {workers_per_node} spares each need more than {spares} spares",
    cause="A spare node has as many spares as other nodes have ranks. These nodes would have more spares than the job has in total.",
    remedy="Request more spares (--spares) or fewer spare nodes.",
)
PREPARED = Message(
    "US4003",
    "{prepared} spares cannot be prepared: there are {spares}",
    cause="The number of prepared spares must lie between 0 and the number of spares.",
    remedy="Request fewer prepared spares (--prepare) or more spares (--spares).",
)
FLOATING_NEGATIVE = Message(
    "US4004",
    "floating spares must not be negative: {floating}",
    cause="The job was requested with a negative number of floating spares.",
    remedy="Request 0 floating spares or more (--floating-spares).",
)
HANG_LIMITS = Message(
    "US4010",
    "timeouts must keep 0 < beat ({beat}) < hang_floor ({hang_floor}) <= hang_first ({hang_first})",
    cause="A worker proves every `beat` seconds that it is scheduled, and a hang is detected after `hang_floor` seconds, or `hang_first` "
    "before the first commit. In another order a healthy worker would be considered hung.",
    remedy="Change the timeouts so that they grow in this order.",
)
HANG_FACTOR = Message(
    "US4011",
    "hang_factor must be at least 1, not {factor}",
    cause="`hang_factor` multiplies the longest transaction so far. Below 1, a transaction as long as the longest one would be a hang.",
    remedy="Set it to 1 or more; the default is 20.",
)
NOT_POSITIVE = Message(
    "US4012",
    "quiesce and stop must be positive",
    cause="These two limits are the time that a survivor has to stop, and the time that a worker has to end after SIGTERM. One of them is "
    "0 or negative.",
    remedy="Set both to more than 0 seconds.",
)
NODE_LIMITS = Message(
    "US4013",
    "timeouts must keep 0 < 2 heartbeats ({heartbeat}) <= node_lost ({node_lost}) < quiesce ({quiesce})",
    cause="A node is lost when its agent is silent for `node_lost` seconds. That must be at least two heartbeats, so that one late "
    "heartbeat does not count as a loss, and less than `quiesce`, so that a lost node is known before its ranks are considered late.",
    remedy="Change the timeouts so that they grow in this order.",
)
TOO_FEW_NODES = Message(
    "US4020",
    "{nodes} with {slots} free slots each are needed, {fitting} are available",
    cause="A job that was submitted to a service needs this number of nodes with enough free slots at the same time.",
    remedy="Wait for other jobs to end, add nodes, or submit the job again with fewer nodes. Until then it waits.",
)
TOO_FEW_SLOTS = Message(
    "US4021",
    "{spares} slots are needed for spares, {free} are free in addition to those of the ranks",
    cause="There are enough slots for the ranks of a submitted job, but not for all of its spares. A spare uses a slot, as a rank does.",
    remedy="Wait for other jobs to end, add nodes, or submit the job again with fewer spares. Until then it waits.",
)
NODE_RANK_TAKEN = Message(
    "US4030",
    "node {node} was refused: its node rank {node_rank} is taken or out of range",
    cause="An agent has connected with a node rank that another node of this job has, or that is out of range.",
    remedy="Start each agent with its own node rank, from 0 to the number of nodes minus 1. End agents of an earlier start that are still "
    "running.",
)
NODE_BACK = Message(
    "US4031",
    "node {node} is back",
    cause="The agent of a node that counted as lost has reconnected. Its spares start again; its former ranks stay where they are.",
)
WORKER_NOT_STARTED = Message(
    "US4040",
    "node {node} could not start worker {worker}: {detail}",
    cause="The agent of this node could not start the process of a rank. A job needs all of its ranks, so it ends.",
    remedy="Check the detail: usually the node lacks memory, processes or files, or the program is missing. Fix that, or remove the node, "
    "and start the job again.",
)
SPARE_NOT_STARTED = Message(
    "US4041",
    "node {node} could not start a spare: {detail}",
    cause="The agent of this node has no memory for one more process, or could not start it. Training continues with one spare less.",
    remedy="Free memory on this node, or place spares elsewhere. The spare is started again after the next incident.",
)
LOST_BEFORE_WARM = Message(
    "US4042",
    "workers on node {node} were lost before they were warm: {detail}",
    cause="Workers of ranks ended repeatedly on this node before they had imported what the script needs, so the job cannot start there.",
    remedy="Read the last lines of these workers in the run directory, and run `understudy doctor` on this node. Remove the node if it is "
    "broken.",
)
NO_MORE_SPARES = Message(
    "US4043",
    "{count} spares in a row were lost on node {node} before they were warm: no more are started there",
    cause="Spares ended repeatedly on this node before they could take over a rank. Training is not affected.",
    remedy="Read the last lines of these workers in the run directory, and fix the node. Until then the job has fewer spares.",
)
SPARE_LOST = Message(
    "US4044",
    "spare {worker} on node {node} was lost: {detail}",
    cause="The process of a spare ended. It held no rank, so training continues; another spare is started if the job replaces spares.",
)
WORKER_LOST = Message(
    "US4045",
    "worker {worker} on node {node} was lost: {detail}",
    cause="A worker that was started for a rank ended before ranks were assigned. Another one takes its place.",
    remedy="Read the last lines of this worker in the run directory if it happens again. Otherwise ignore this.",
)
RESTARTS = Message(
    "US4050",
    "{reason} before the first transaction: all ranks restart from the beginning ({restarts} of at most {most} times)",
    cause="A rank was lost before the first step was committed. Nothing had been computed yet, so all workers are started from scratch.",
    remedy="Find out what ends workers in the setup of the script if it repeats. Otherwise ignore this.",
)
RESTARTS_UNPROTECTED = Message(
    "US4053",
    "{reason} in a script that is not protected: all ranks restart from the beginning of the script, and what they had computed since "
    "then, or since its own checkpoint, is lost ({restarts} of at most {most} times)",
    cause="The script makes its own default process group, as US1003 has reported, so none of its ranks can be recovered.",
    remedy="Change the script as US1003 explains (`understudy explain US1003`).",
)
STARTED_TOO_OFTEN = Message(
    "US4051",
    "the job restarted from the beginning {restarts} of at most {most} times, and lost a rank before its first transaction again: {reason}",
    cause="Ranks are lost in the setup of the script, or in its first step, every time. So the script or its environment is the likely "
    "cause.",
    remedy="Read the last lines of the lost workers in the run directory, fix what ended them, and start the job again.",
)
NODES_MISSING = Message(
    "US4052",
    "{reason} before the first transaction, and not all nodes are available for a restart",
    cause="A loss before the first step means that all ranks start from scratch, which needs all nodes. One of them is lost.",
    remedy="Bring the node back or use another one, and start the job again.",
)

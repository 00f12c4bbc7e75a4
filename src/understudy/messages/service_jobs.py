"""Messages of an orchestrator about its nodes, its jobs, the scheduler, and the consequences of evidence."""

from __future__ import annotations

from understudy.messages.base import Message

NODE_HERE = Message(
    "US5300",
    "node {node} has connected: {slots} slots",
    cause="The agent of this node has connected to the service.",
)

WAITS_FOR_ENDED = Message(
    "US5298",
    "it is blocked in a transaction, and another rank has exited with code 0",
    cause="A rank ended its process while the others continue, and their collectives wait for it.",
    remedy="Let all ranks end after the same step.",
)

STARTED_TWICE = Message(
    "US5299",
    "node {node} was started a second time, at {address}, and the second start is refused: the first one continues",
    cause="Two commands with the same --node-rank were started for this job.",
    remedy="Give each node its own --node-rank.",
)

NODE_AWAY = Message(
    "US5301",
    "node {node} is unreachable: no message from its agent for {seconds:.1f} s",
    cause="The host or the network to it is down, or its agent has ended.",
    remedy="Check the host and its agent. Each job on the node has its own agent and connection, and is not affected by this.",
)

NODE_BACK = Message(
    "US5302",
    "node {node} is back: job {job} gets its {slots} slots back",
    cause="A node that a job had lost has returned, and the job starts spares there.",
)

AGENT_ENDED = Message(
    "US5303",
    "its agent ended with exit code {code}",
    cause="In a service, each job has its own agent on a node, which manages the job's workers there. It ended while the job continued.",
    remedy="Read agent.log in the job's folder below --state-dir of `understudy agent`.",
)

ENVIRONMENT_UNREADABLE = Message(
    "US5304",
    "the environment of job {job} cannot be read: agents of the job that are started from now on do not get it",
    cause="The file with the job's environment below --state-dir is missing or damaged.",
    remedy="Submit the job again if its script needs the environment.",
)

JOB_PUT_ASIDE = Message(
    "US5305",
    "job {job} is put aside: {reason}. Its workers, if any, continue until one of them is lost or all finish; `understudy cancel {job}` "
    "ends them. Other jobs are not affected",
    cause="The record of this job in the journal cannot be read, is missing, or lacks events that its nodes know.",
    remedy="Use the Understudy that wrote the journal, restore it from a backup, or cancel the job.",
)

ORPHANED = Message(
    "US5355",
    "the journal does not contain it, but node {node} has workers of it",
    cause="The journal was lost or replaced while the job was training.",
    remedy="Restore the journal from a backup and restart the orchestrator, or end the job with `understudy cancel`.",
)

JOB_LEADS_NOWHERE = Message(
    "US5306",
    "its record in the journal is inconsistent ({error})",
    cause="The record of the job can be read, but the job cannot be continued from it.",
    remedy="Use the Understudy that wrote the journal, and report it as a bug.",
)

WAITS_FOR_NODES = Message(
    "US5307",
    "waits for the nodes to reconnect: the orchestrator has just been started",
    cause="Agents have a few seconds to reconnect before jobs are placed.",
)

WAITS_FOR_SLOTS = Message(
    "US5308",
    "waits for slots: {reason}",
    cause="The connected nodes do not have enough free slots for the job's ranks and spares.",
    remedy="Wait for other jobs to end, start agents on more nodes, or submit the job with fewer ranks or spares.",
)

PART_SAW = Message(
    "US5317",
    "evidence from the agent of the job on node {node} was dropped: in a service, only the node's own agent reports evidence",
    cause="A job's agent has authority over its job only, and the node serves other jobs, too. Agents that this version starts for a "
    "job send no evidence.",
    remedy="No action if the job's agent is of an earlier version: it ends with its job. Otherwise find out which program has the job's "
    "token.",
)

WAITS_FOR_OTHERS = Message(
    "US5316",
    "waits for slots: the free ones are reserved for {jobs}, submitted earlier and waiting for more than {minutes:.0f} minutes",
    cause="Smaller jobs have started before a larger one for a while, so slots are now reserved for the larger job.",
    remedy="Wait until that job has started, or cancel it.",
)

NODE_DRAINED = Message(
    "US5309",
    "drained: {reason}",
    cause="The node was drained, so it gets no new jobs.",
    remedy="Run `understudy undrain` to use it again.",
)

MARKS_UNREADABLE = Message(
    "US5310",
    "{path} cannot be read, so drains and taints of nodes without jobs are lost; the file is kept as {kept}: {reason}",
    cause="The file in which the service keeps drains and taints is damaged.",
    remedy="Drain or taint the nodes again that should get no jobs.",
)

MARKS_UNWRITTEN = Message(
    "US5311",
    "{path} cannot be written: an orchestrator that is started now does not know which nodes are drained or tainted: {reason}",
    cause="The disk with --state-dir is full or cannot be written.",
    remedy="Make room on the disk, and drain or taint the nodes again after the next start.",
)

OUTPUT_UNWRITTEN = Message(
    "US5312",
    "cannot write {path}: {reason}; training continues, output is not kept there from now on",
    cause="The disk for the job's output is full or cannot be written.",
    remedy="Free space on the disk.",
)

AGENT_SENT_AWAY = Message(
    "US5313",
    "an agent that introduced itself as node {node} was refused: {reason}",
    cause="Its token or certificate is for another node, or for none.",
    remedy="Give each node a token or certificate with its name. If none of yours did this, change the secret.",
)

NODE_KEPT_WAITING = Message(
    "US5318",
    "the agent of node {node} is refused, and tries again: {reason}",
    cause="Its description of the node is longer than this version accepts. Earlier versions accepted it, so the jobs on the node "
    "continue without this agent.",
    remedy="Start that agent again with fewer or shorter labels. Its jobs continue.",
)

NOT_ITS_PART = Message(
    "US5314",
    "node {node} reported the end of its agent of job {job}, which has none there",
    cause="The report contradicts the records of the orchestrator, and was ignored.",
    remedy="Check the node: another program may be running in place of its agent.",
)

NODE_TAINTED = Message(
    "US5315",
    "tainted: {reason}",
    cause="The node was tainted for all jobs, so it gets no new ones.",
    remedy="Use it again with `understudy taint --node NODE --remove`, without --job.",
)

AGENTS_STILL_CONNECTED = Message(
    "US5320",
    "agents still connected after the end: {nodes}",
    cause="The job is over, and the agents of these nodes did not end in time, often because workers do not end.",
    remedy="Check the processes on these nodes.",
)

NODE_GIVEN_BACK = Message(
    "US5321",
    "node {node} is returned",
    cause="The node is no longer part of the job.",
)

NOT_A_MESSAGE = Message(
    "US5322",
    "node {node} sent something that is not a message: {reason}",
    cause="The agent of the node has a different version, or another program has the job's secret. The data is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

NOT_AN_AGENTS_MESSAGE = Message(
    "US5323",
    "node {node} sent a {type}, which an agent must not send",
    cause="The agent of the node sent a message that only an orchestrator sends. It is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

JOINED_TWICE = Message(
    "US5324",
    "node {node} reports again that it has joined",
    cause="The agent of the node introduced itself twice over one connection. The second message is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

WORKER_NOT_THERE = Message(
    "US5325",
    "node {node} reports about worker {worker}, which is not there",
    cause="The agent of the node reported about a worker that is not on this node. The message is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

SPEAKS_FOR_ANOTHER = Message(
    "US5326",
    "node {node} reports about another node",
    cause="The agent of the node reported about another node. The message is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

NO_PROGRESS = Message(
    "US5327",
    "no rank has made progress for {seconds:.0f} s, and no single rank can be identified as the cause",
    cause="All ranks are waiting, for each other or for something outside the job, such as a file system.",
    remedy="Inspect the workers with `py-spy dump`, and check what the script is waiting for.",
)

DISCONNECTED = Message(
    "US5330",
    "its agent was disconnected for more than {seconds:g} s",
    cause="The agent of the node lost its connection to the orchestrator and did not come back in time.",
    remedy="Check the host and the network to it.",
)

NOT_BACK = Message(
    "US5331",
    "its agent did not reconnect after the orchestrator was restarted",
    cause="The agent of the node was connected to the previous orchestrator, and has not connected since.",
    remedy="Check the host and the network to it.",
)

SILENT = Message(
    "US5332",
    "no message from it for {seconds:.1f} s (the host or the network to it is down)",
    cause="The agent of the node sent no heartbeat for longer than --node-timeout.",
    remedy="Check the host and the network to it. If it was only busy, raise --node-timeout.",
)

SILENT_WITH_ORCHESTRATOR = Message(
    "US5333",
    "no message from it for {seconds:.1f} s, nor from its orchestrator",
    cause="Neither the agent nor the orchestrator of the node has sent a message.",
    remedy="Check the host and the network to it.",
)

DETECTOR_TOO_FAST = Message(
    "US5340",
    "{detector} reports more than {most:g} new findings a second: not all of them are kept in the journal",
    cause="A detector reports new evidence faster than the journal should grow. The policy is still applied to all of it.",
    remedy="Make the detector report the same thing under the same kind, or less often.",
)

EVIDENCE_LEFT_OUT = Message(
    "US5341",
    "evidence of the detector {detector} is ignored: {reason}",
    cause="Evidence of a detector of another package holds a value that cannot be stored.",
    remedy="Correct the detector.",
)

RESERVED_DETECTOR = Message(
    "US5342",
    "evidence about {node} is ignored: no other detector can have the name {detector}",
    cause="Understudy itself uses this name for reports of a person or of its core.",
    remedy="Give the detector another name.",
)

DETECTOR_LEFT_OUT = Message(
    "US5343",
    "the detector {detector} is disabled from now on: {reason}",
    cause="The detector raised an exception, found too much at once, or takes too long. Everything else continues.",
    remedy="Correct the detector, and restart the job or the agent.",
)

FLOOD = Message(
    "US5344",
    "it reports more than {most} findings in one run",
    cause="The detector returned more evidence in one run than is accepted at once.",
    remedy="Make the detector report fewer findings, for example only changes.",
)

NOT_EVIDENCE = Message(
    "US5345",
    "{evidence} is not evidence of an event",
    cause="The detector returned an object that is not evidence, or evidence with an invalid time.",
    remedy="Return objects of `Evidence` with unix times.",
)

RANKS_STAY_ON_NODE = Message(
    "US5346",
    "ranks do not leave node {node} yet: {reason}",
    cause="The policy requires the ranks to leave the node, and one of its limits does not allow that now.",
    remedy="Wait; the limits are checked again. They are in the policy (`understudy policy show`).",
)

RANK_STAYS = Message(
    "US5347",
    "rank {rank} does not leave {worker} yet: {reason}",
    cause="The policy requires the rank to leave this worker, and one of its limits does not allow that now.",
    remedy="Wait; the limits are checked again. They are in the policy (`understudy policy show`).",
)

NOTED = Message(
    "US5348",
    "{about}: {reason}",
    cause="A detector reported this, and the policy only asks for a notice.",
    remedy="Check the node or worker that is named.",
)

WOULD_BE_TRUSTED = Message(
    "US5350",
    "node {node} would be trusted again, as far as {detector} is concerned",
    cause="In a dry run of a policy: the condition that the detector reported has ended by then.",
)

WOULD_LEAVE = Message(
    "US5351",
    "node {node}: ranks would leave it{until}: {reason}",
    cause="In a dry run of a policy: a rule makes ranks leave the node.",
)

WOULD_BE_TAINTED = Message(
    "US5352",
    "node {node}: it would get no more ranks or spares{until}: {reason}",
    cause="In a dry run of a policy: a rule prevents new ranks and spares on the node.",
)

WOULD_MOVE = Message(
    "US5353",
    "rank {rank} would move to a spare: {reason}",
    cause="In a dry run of a policy: a rule makes the rank leave its worker.",
)

WOULD_BE_ENDED = Message(
    "US5354",
    "worker {worker} would be ended, and its rank would go to a spare: {reason}",
    cause="In a dry run of a policy: a rule declares the worker lost.",
)

SCHEDULER_FAILS = Message(
    "US5400",
    "the scheduler does not execute the request: {reason}. Training continues, and the request is retried",
    cause="A command or request to the scheduler has failed.",
    remedy="Fix the cause that the message gives. Until then there are no spares on nodes of the scheduler.",
)

SCHEDULER_ANSWERS = Message(
    "US5401",
    "the scheduler answers again",
    cause="Requests that the scheduler could not answer for a while have been completed.",
)

NOT_GIVEN_BACK = Message(
    "US5402",
    "{nodes} could not be returned to the scheduler: {reason}",
    cause="The scheduler did not take back nodes that the job no longer needs. They stay with the job until its end.",
    remedy="Fix the cause that the message gives, if the nodes are needed elsewhere.",
)

NOT_DRAINED = Message(
    "US5403",
    "{nodes} could not be drained: {reason}",
    cause="The policy asks the scheduler to drain nodes that were returned, and the scheduler refused.",
    remedy="Drain them with the scheduler's own commands; the job's user may lack the permission.",
)

SCHEDULER_NOT_NOTIFIED = Message(
    "US5404",
    "the job is over, and the scheduler could not be notified: {reason}",
    cause="The last requests to the scheduler at the job's end failed, or were not answered in time.",
    remedy="Check whether the scheduler still lists nodes of the job.",
)

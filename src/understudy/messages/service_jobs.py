"""Messages of an orchestrator about its nodes, its jobs, the scheduler, and what follows from evidence."""

from __future__ import annotations

from understudy.messages.base import Message

NODE_HERE = Message(
    "US5300",
    "node {node} is here: {slots} slots",
    cause="The agent of this node has connected to the service.",
)

WAITS_FOR_ENDED = Message(
    "US5298",
    "it stands still in a transaction, and another rank has exited with code 0",
    cause="A rank has ended its process while the others go on, and their collectives wait for it.",
    remedy="Let all ranks end after the same step.",
)

STARTED_TWICE = Message(
    "US5299",
    "node {node} was started a second time, at {address}, and that one is refused: the first one goes on",
    cause="Two commands with the same --node-rank were started for this job.",
    remedy="Give each node its own --node-rank.",
)

NODE_AWAY = Message(
    "US5301",
    "node {node} is away: nothing was heard of its agent for {seconds:.1f} s",
    cause="The host is down, the network to it is, or its agent has ended.",
    remedy="Look at the host and its agent. Jobs on the node are looked after by themselves.",
)

NODE_BACK = Message(
    "US5302",
    "node {node} is here again: job {job} gets its {slots} slots back",
    cause="A node that a job had lost has come back, and the job starts spares there.",
)

AGENT_ENDED = Message(
    "US5303",
    "its agent ended with exit code {code}",
    cause="A job's part on the node ended while the job went on.",
    remedy="Look at agent.log in the part's folder below the agent's --state-dir.",
)

ENVIRONMENT_UNREADABLE = Message(
    "US5304",
    "the environment of job {job} cannot be read: parts that are started from now on get none",
    cause="The file with the job's environment below --state-dir is gone or damaged.",
    remedy="Submit the job again if its script needs the environment.",
)

JOB_PUT_ASIDE = Message(
    "US5305",
    "job {job} is put aside: {reason}. Its workers, if there are any, go on until they lose one of them or finish; `understudy cancel "
    "{job}` ends them. All other jobs go on as ever",
    cause="The journal cannot be read where it tells of this job, does not know it, or lacks what its nodes know.",
    remedy="Use the Understudy that wrote the journal, restore it from a backup, or cancel the job.",
)

ORPHANED = Message(
    "US5355",
    "the journal does not know it, but node {node} has workers of it",
    cause="The journal was lost, or replaced by another one, while the job trained.",
    remedy="Restore the journal from a backup and start the orchestrator again, or end the job with `understudy cancel`.",
)

JOB_LEADS_NOWHERE = Message(
    "US5306",
    "what the journal tells of it leads nowhere ({error})",
    cause="The journal of the job can be read, but the job cannot be continued from it.",
    remedy="Use the Understudy that wrote the journal, and report it as a bug.",
)

WAITS_FOR_NODES = Message(
    "US5307",
    "waits for the nodes to come back: the orchestrator has just been started",
    cause="Agents have some seconds to come back before jobs are placed.",
)

WAITS_FOR_SLOTS = Message(
    "US5308",
    "waits for slots: {reason}",
    cause="The nodes that are there have not enough free slots for the job's ranks and spares.",
    remedy="Wait for other jobs to end, start agents on more nodes, or submit the job with fewer ranks or spares.",
)

PART_SAW = Message(
    "US5317",
    "evidence from the job's part on node {node} was dropped: in a service the node's own agent says what is seen there",
    cause="A job's part speaks for its job only, and the node serves others, too. The parts that this version starts send none.",
    remedy="Nothing, for a part of an earlier version; it ends with its job. Else see which program has the job's token.",
)

WAITS_FOR_OTHERS = Message(
    "US5316",
    "waits for slots: those that are free are kept for {jobs}, which came before and waited for more than {minutes:.0f} minutes",
    cause="A larger job has been passed by smaller ones for a while. Its nodes are kept for it now.",
    remedy="Wait until it has begun, or cancel it.",
)

NODE_DRAINED = Message(
    "US5309",
    "drained: {reason}",
    cause="The node was drained, so it gets no new jobs.",
    remedy="Use it again with `understudy undrain`.",
)

MARKS_UNREADABLE = Message(
    "US5310",
    "{path} cannot be read, so nodes without jobs that were drained or tainted are not any more; the file is kept as {kept}: {reason}",
    cause="The file in which the service keeps what people have said of nodes is damaged.",
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
    "cannot write {path}: {reason}; training goes on, what is printed now is not kept there",
    cause="The disk for the job's output is full or cannot be written.",
    remedy="Make room on the disk.",
)

AGENT_SENT_AWAY = Message(
    "US5313",
    "an agent that said it was node {node} was sent away: {reason}",
    cause="Its token or certificate is for another node, or for none.",
    remedy="Give each node a token or certificate with its name. If none of yours did this, change the secret.",
)

NODE_KEPT_WAITING = Message(
    "US5318",
    "the agent of node {node} is not let in, and tries again: {reason}",
    cause="It says more of its node than this version keeps of one. Earlier versions took that, so its parts go on without it.",
    remedy="Start that agent again with fewer or shorter labels: its jobs go on.",
)

NOT_ITS_PART = Message(
    "US5314",
    "node {node} reported the end of its part in job {job}, which has none there",
    cause="The agent of the node has said something that cannot be. It was ignored.",
    remedy="Look at the node: something else may run in the place of its agent.",
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
    cause="The job is over, and the agents of these nodes have not ended in time, often because workers do not end.",
    remedy="Look at the processes on these nodes.",
)

NODE_GIVEN_BACK = Message(
    "US5321",
    "node {node} is given back",
    cause="The node is not part of the job any more.",
)

NOT_A_MESSAGE = Message(
    "US5322",
    "node {node} sent something that is not a message: {reason}",
    cause="The agent of the node is of another version, or something else has the job's secret. What it sent is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

NOT_AN_AGENTS_MESSAGE = Message(
    "US5323",
    "node {node} sent a {type}, which is not an agent's to send",
    cause="The agent of the node has sent what only an orchestrator sends. It is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

JOINED_TWICE = Message(
    "US5324",
    "node {node} says again that it has joined",
    cause="The agent of the node has introduced itself twice over one connection. The second time is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

WORKER_NOT_THERE = Message(
    "US5325",
    "node {node} speaks of worker {worker}, which is not there",
    cause="The agent of the node has reported about a worker that is not on this node. It is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

SPEAKS_FOR_ANOTHER = Message(
    "US5326",
    "node {node} speaks for another node",
    cause="The agent of the node has reported about another node. It is ignored.",
    remedy="Install the same version of Understudy on all hosts.",
)

NO_PROGRESS = Message(
    "US5327",
    "no rank has made progress for {seconds:.0f} s, and no rank alone can be told to hold up the others",
    cause="All ranks wait, for each other or for something outside the job, such as a file system.",
    remedy="Look at the workers with `py-spy dump`, and at what the script waits for.",
)

DISCONNECTED = Message(
    "US5330",
    "its agent was disconnected for more than {seconds:g} s",
    cause="The agent of the node lost its connection to the orchestrator and did not come back in time.",
    remedy="Look at the host and at the network to it.",
)

NOT_BACK = Message(
    "US5331",
    "its agent did not come back after the orchestrator was started again",
    cause="The agent of the node was connected to the orchestrator before this one, and has not come since.",
    remedy="Look at the host and at the network to it.",
)

SILENT = Message(
    "US5332",
    "nothing was heard of it for {seconds:.1f} s (the host is down, or the network to it)",
    cause="No sign of life came from the agent of the node for longer than --node-timeout.",
    remedy="Look at the host and at the network to it. If it was only busy, give a longer --node-timeout.",
)

SILENT_WITH_ORCHESTRATOR = Message(
    "US5333",
    "nothing was heard of it for {seconds:.1f} s, nor of its orchestrator",
    cause="Neither the agent nor the orchestrator of the node has been heard of.",
    remedy="Look at the host and at the network to it.",
)

DETECTOR_TOO_FAST = Message(
    "US5340",
    "{detector} sees more than {most:g} new things a second: not all of it is kept in the journal",
    cause="A detector reports new evidence faster than the journal should grow. What follows from it is decided all the same.",
    remedy="Let the detector report the same thing under the same kind, or less often.",
)

EVIDENCE_LEFT_OUT = Message(
    "US5341",
    "what the detector {detector} says is left out: {reason}",
    cause="Evidence of a detector of another package holds a value that cannot be kept.",
    remedy="Correct the detector.",
)

RESERVED_DETECTOR = Message(
    "US5342",
    "evidence about {node} is left out: no other detector can be called {detector}",
    cause="The name is one that Understudy itself uses for what a person or its core says.",
    remedy="Give the detector another name.",
)

DETECTOR_LEFT_OUT = Message(
    "US5343",
    "the detector {detector} is left out from now on: {reason}",
    cause="The detector has raised an exception, found too much at once, or takes too long. Everything else goes on.",
    remedy="Correct the detector, and start the job or the agent again.",
)

FLOOD = Message(
    "US5344",
    "it finds more than {most} things in one look",
    cause="A look of the detector returned more evidence than is taken at once.",
    remedy="Let the detector report fewer things, for instance only what has changed.",
)

NOT_EVIDENCE = Message(
    "US5345",
    "{evidence} is no evidence of something that has happened",
    cause="The detector returned something else than evidence, or evidence with a time that is none.",
    remedy="Return objects of `Evidence` with unix times.",
)

RANKS_STAY_ON_NODE = Message(
    "US5346",
    "ranks do not leave node {node} yet: {reason}",
    cause="The policy wants the ranks to leave the node, and one of its limits does not allow that now.",
    remedy="Nothing; it is asked again. The limits are in the policy (`understudy policy show`).",
)

RANK_STAYS = Message(
    "US5347",
    "rank {rank} does not leave {worker} yet: {reason}",
    cause="The policy wants the rank to leave this worker, and one of its limits does not allow that now.",
    remedy="Nothing; it is asked again. The limits are in the policy (`understudy policy show`).",
)

NOTED = Message(
    "US5348",
    "{about}: {reason}",
    cause="A detector has seen this, and the policy says that a person should know.",
    remedy="Look at the node or worker that is named.",
)

WOULD_BE_TRUSTED = Message(
    "US5350",
    "node {node} would be trusted again, as far as {detector} is asked",
    cause="In a dry run of a policy: what the detector had seen is over by then.",
)

WOULD_LEAVE = Message(
    "US5351",
    "node {node}: ranks would leave it{until}: {reason}",
    cause="In a dry run of a policy: a rule says that ranks leave the node.",
)

WOULD_BE_TAINTED = Message(
    "US5352",
    "node {node}: it would get no more ranks and spares{until}: {reason}",
    cause="In a dry run of a policy: a rule says that the node gets no new ranks and spares.",
)

WOULD_MOVE = Message(
    "US5353",
    "rank {rank} would move to a spare: {reason}",
    cause="In a dry run of a policy: a rule says that the rank leaves its worker.",
)

WOULD_BE_ENDED = Message(
    "US5354",
    "worker {worker} would be ended, and its rank would go to a spare: {reason}",
    cause="In a dry run of a policy: a rule says that the worker counts as lost.",
)

SCHEDULER_FAILS = Message(
    "US5400",
    "the scheduler does not do what it was asked for: {reason}. Training goes on, and it is asked again",
    cause="A command or request to the scheduler has failed.",
    remedy="Do what the reason says. Spares on nodes that the scheduler would give are not there meanwhile.",
)

SCHEDULER_ANSWERS = Message(
    "US5401",
    "the scheduler answers again",
    cause="What could not be asked of the scheduler for a while is done now.",
)

NOT_GIVEN_BACK = Message(
    "US5402",
    "{nodes} could not be given back to the scheduler: {reason}",
    cause="The scheduler did not take nodes that the job does not need any more. They stay with the job until its end.",
    remedy="Do what the reason says, if the nodes are needed elsewhere.",
)

NOT_DRAINED = Message(
    "US5403",
    "{nodes} could not be drained: {reason}",
    cause="The policy wants the scheduler to drain nodes that were given back, and the scheduler refused.",
    remedy="Drain them with the scheduler's own commands; the job's user may not have the right to.",
)

SCHEDULER_UNTOLD = Message(
    "US5404",
    "the job is over, and the scheduler could not be told so: {reason}",
    cause="The last requests to the scheduler at the job's end have failed, or it did not answer in time.",
    remedy="Look whether the scheduler still lists nodes of the job.",
)

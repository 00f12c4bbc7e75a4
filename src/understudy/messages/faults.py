"""Fault injection (`understudy chaos`): plans, why a fault is not injected, and outcomes that were not expected."""

from __future__ import annotations

from understudy.messages.base import Message

# Faults of the registry.
NOTHING_TO_DO = Message(
    "US7000",
    "the fault {fault!r} has no action: give outside, inside or both",
    cause="A `Fault` was created without either of the two functions that carry it out.",
    remedy="Give `outside`, which the command calls, or `inside`, which the worker calls.",
)
INSIDE_A_WORKER = Message(
    "US7001",
    "the fault {fault!r} happens inside a worker, so it must hit a worker",
    cause="A `Fault` has `inside`, but its `hits` is not `Hits.WORKER`.",
    remedy="Set hits = Hits.WORKER.",
)
TWO_OF_ONE_NAME = Message(
    "US7002",
    "there are two faults named {fault!r}",
    cause="Another package adds a fault whose name is taken.",
    remedy="Rename the fault in that package.",
)
NO_SUCH_FAULT = Message(
    "US7003",
    "there is no fault {fault!r}; known faults: {known}",
    cause="The plan or the command names a fault that is not installed.",
    remedy="Use one of the listed names. `understudy chaos --list` shows what each does.",
)
NO_SUCH_PARAMETER = Message(
    "US7004",
    "{fault} has no parameter {parameter!r}; it has {known}",
    cause="The plan or the command gives the fault a parameter that it does not have.",
    remedy="Use one of the listed parameters. `understudy chaos --list` shows them.",
)
NOT_A_CHOICE = Message(
    "US7005",
    "{fault}: {parameter} must be one of {choices}, not {value!r}",
    cause="The parameter accepts certain values only.",
    remedy="Give one of them.",
)
WRONG_TYPE = Message(
    "US7006",
    "{fault}: {parameter} must be {wanted}, not {value!r}",
    cause="The value of the parameter has another type.",
    remedy="Give a value of the type named.",
)
NEGATIVE = Message(
    "US7007",
    "{fault}: {parameter} must not be negative",
    cause="The parameter is a length, a size or a time.",
    remedy="Give a value of 0 or more.",
)
NO_PROCESS = Message(
    "US7008",
    "{pid} is not a process id: no fault can be injected into it",
    cause="A fault received 0, a negative number or nothing as a process: a signal to such a number would reach a whole group of "
    "processes.",
    remedy="Give the process id of a worker as `understudy status --json` shows it, when it is known.",
)
NO_DEVICE = Message(
    "US7009",
    "the driver shows no device",
    cause="The fault needs a GPU. The driver is installed, but has no device that this process may use.",
    remedy="Check nvidia-smi and CUDA_VISIBLE_DEVICES, or choose another fault.",
)

# Plans.
IN_PLAN = Message(
    "US7040",
    "{path}: {problem}",
    cause="The plan cannot be used, for the reason that is named.",
    remedy="Correct the file. `understudy chaos --list` shows faults and their parameters.",
)
OF_FAULT = Message(
    "US7041",
    "fault {number}: {problem}",
    cause="This entry of the plan, counted from 1, cannot be used, for the reason that is named.",
    remedy="Correct the entry. `understudy chaos --list` shows faults and their parameters.",
)
NOT_TOML = Message(
    "US7020",
    "{path}: not TOML: {problem}",
    cause="The plan has a mistake in its syntax. The message says where.",
    remedy="Correct it.",
)
UNKNOWN_SETTING = Message(
    "US7021",
    "{place}there is no {name!r}; known names: {known}",
    cause="The plan has a setting that does not exist.",
    remedy="Look for a typing error among the names given.",
)
MISSING_SETTING = Message(
    "US7022",
    "{place}{name} is missing",
    cause="The plan lacks a setting that has no default.",
    remedy="Add it.",
)
BAD_SETTING = Message(
    "US7023",
    "{place}{problem}",
    cause="A setting of the plan has a value of the wrong type, or out of range.",
    remedy="Give a value as the message requires.",
)
SEVERAL_TARGETS = Message(
    "US7024",
    "{targets}: a fault has one target",
    cause="An entry of the plan has more than one of rank, node and spare.",
    remedy="Leave one of them. For several targets, write several entries.",
)
STEP_OR_TIME = Message(
    "US7025",
    "at_step and after: give one of them",
    cause="An entry of the plan gives both a step and a time in seconds.",
    remedy="Leave out one of the two.",
)
COUNT_NEEDS_EVERY = Message(
    "US7026",
    "'count = {count}' needs 'every': the number of steps (with 'at_step') or seconds between two occurrences",
    cause="An entry of the plan occurs several times, and the interval is missing.",
    remedy="Add the setting `every`.",
)
EVERY_NEEDS_COUNT = Message(
    "US7027",
    "'every' needs 'count': the number of occurrences",
    cause="An entry of the plan repeats, and the number of occurrences is missing.",
    remedy="Add the setting `count`.",
)
WHOLE_STEPS = Message(
    "US7028",
    "with 'at_step', the values of 'every' and 'jitter' must be whole numbers of steps",
    cause="An entry of the plan counts in steps, but `every` or `jitter` has a fraction.",
    remedy="Give whole numbers, or count in seconds with `after`.",
)
NO_SUCH_POINT = Message(
    "US7029",
    "there is no point {point!r}; known points: {known}",
    cause="An entry of the plan names a point of a worker's step that does not exist.",
    remedy="Use one of the listed names.",
)
NEEDS_AT_RANK = Message(
    "US7030",
    "{fault} does not happen inside a worker: give at_rank, the rank that waits at the point",
    cause="An entry of the plan names a point, and its fault is injected from outside.",
    remedy="Add at_rank, or leave out point.",
)
AT_RANK_INSIDE = Message(
    "US7031",
    "at_rank is the rank that waits at a point while a fault is injected from outside, but {fault} happens inside the worker",
    cause="An entry of the plan has at_rank, and the worker itself carries out its fault.",
    remedy="Use rank instead of at_rank.",
)
AT_RANK_WITHOUT_POINT = Message(
    "US7032",
    "at_rank is the rank that waits at a point while a fault is injected from outside, but there is no point",
    cause="An entry of the plan has at_rank and no point.",
    remedy="Add point, or leave out at_rank.",
)
NOT_IN_A_SPARE = Message(
    "US7033",
    "{fault} happens inside a rank's script, and a spare does not run it yet",
    cause="An entry of the plan has a spare as its target, and its fault happens inside a running script.",
    remedy="Use a rank instead of the spare, or another fault.",
)
HITS_A_WORKER = Message(
    "US7034",
    "{fault} hits a worker: give rank (a number or {random!r}) or spare = true, not node",
    cause="An entry of the plan has a node as the target of a fault that hits a worker.",
    remedy="Give rank or spare.",
)
HITS_NO_WORKER = Message(
    "US7035",
    "{fault} hits {target}: leave out rank and spare{node}",
    cause="An entry of the plan has a rank or a spare as the target of a fault that hits a node or the orchestrator.",
    remedy="Leave out rank and spare. For a fault that hits a node, give node.",
)
HITS_THE_ORCHESTRATOR = Message(
    "US7036",
    "{fault} hits the orchestrator: leave out node",
    cause="An entry of the plan has a node as the target of a fault that hits the orchestrator.",
    remedy="Leave out node.",
)
NO_SUCH_RANK = Message(
    "US7037",
    "fault {number}: the job has no rank {rank}; its ranks are 0 to {last}",
    cause="The plan is for a larger job than this one.",
    remedy="Give a rank that the job has, or 'random'.",
)
NO_SUCH_AT_RANK = Message(
    "US7038",
    "fault {number}: at_rank: the job has no rank {rank}; its ranks are 0 to {last}",
    cause="The plan is for a larger job than this one.",
    remedy="Give a rank that the job has.",
)
NO_SUCH_NODE = Message(
    "US7039",
    "fault {number}: the job has no node {node!r}; it has {known}",
    cause="The plan names a node that does not serve this job.",
    remedy="Use one of the listed nodes, or 'random'.",
)

# Why a fault is not injected.
PROCESS_NOT_HERE = Message(
    "US7060",
    "worker {worker} is on {node}, and its process {pid} is not on this machine, or belongs to another user: run the command there",
    cause="A fault is injected into a process, so the command has to run on the machine of its target, with the necessary permissions.",
    remedy="Run the command on that node.",
)
NODE_NOT_HERE = Message(
    "US7061",
    "node {node} has no worker, and its agent is found only through one",
    cause="The agent of a node is found through the folder of its workers, and the node has no workers now.",
    remedy="Try again when the job has workers on this node.",
)
AGENT_NOT_HERE = Message(
    "US7062",
    "the agent of node {node} does not listen to its workers ({reason})",
    cause="The agent is found through the socket on which it listens to its workers. It is being restarted, or has ended.",
    remedy="Try again in a moment.",
)
ORCHESTRATOR_NOT_HERE = Message(
    "US7063",
    "the orchestrator at {url} is not on this machine: run the command there",
    cause="A fault is injected into a process, so the command has to run on the machine of its target.",
    remedy="Run the command on the orchestrator's machine.",
)
NO_SPARE_TO_REPLACE = Message(
    "US7064",
    "no spare is warm, so the job would end: start it with more --spares",
    cause="The fault ends a rank that a spare has to take over, and no spare is ready.",
    remedy="Start the job with more --spares, or leave more time between the faults.",
)
NO_WARM_SPARE = Message(
    "US7065",
    "no spare is warm",
    cause="The fault is injected into a spare, and no spare is ready.",
    remedy="Start the job with more --spares, or leave more time between the faults.",
)
NO_CONSENT_INSIDE = Message(
    "US7066",
    "{fault} happens inside a worker, which requires a job that was started with understudy run --chaos",
    cause="Workers damage themselves only in a job whose user allowed that at its start.",
    remedy="Start the job with understudy run --chaos.",
)
NO_CONSENT_TO_WAIT = Message(
    "US7067",
    "{fault} is injected while a worker waits at a point, which requires a job that was started with understudy run --chaos",
    cause="Workers wait at a point for a fault only in a job whose user allowed that at its start.",
    remedy="Start the job with understudy run --chaos.",
)
JOB_ENDED = Message(
    "US7068",
    "the job has ended",
    cause="The job was over before this fault was due.",
    remedy="Let the job run longer, or inject the fault earlier.",
)
NO_NFT = Message(
    "US7069",
    "the commands nft (nftables) and nsenter (util-linux) are needed",
    cause="Network faults are packet filter rules, which these two programs create.",
    remedy="Install nftables and util-linux.",
)
NOT_ROOT = Message(
    "US7070",
    "packet filter rules need root",
    cause="Only root may create packet filter rules.",
    remedy="Run the command as root.",
)
NFT_REFUSED = Message(
    "US7071",
    "nft rejected the rules: {reason}",
    cause="The program nft or the kernel rejected the rules. The output of nft is quoted.",
    remedy="Load the kernel's modules of nftables: missing modules are the usual cause.",
)
NO_GPU = Message(
    "US7072",
    "no GPU here ({reason})",
    cause="NVIDIA's driver injects this fault into a GPU, and there is no driver or no device.",
    remedy="Run it on a node with NVIDIA GPUs.",
)
CUDA_FAILED = Message(
    "US7073",
    "{call} failed with CUDA error {error}",
    cause="NVIDIA's driver refused the call that injects the fault.",
    remedy="Look up the number under CUresult in NVIDIA's documentation of the driver API.",
)
SYSTEM_REFUSED = Message(
    "US7074",
    "{reason}",
    cause="The system refused the action of the fault, for example because the process has ended. The text comes from the operating "
    "system.",
    remedy="Check that the target still exists, and that this user has the necessary permissions.",
)

# Outcomes.
POINT_NOT_REACHED = Message(
    "US7090",
    "its point was not reached within {seconds:.0f} s",
    cause="The worker did not reach the point at which the fault was to occur.",
    remedy="Choose a point that this job reaches, such as 'vote'.",
)
NOT_WHOLE_AGAIN = Message(
    "US7091",
    "neither ended nor recovered within {seconds:.0f} s: state {state}",
    cause="After the fault the job neither recovered nor ended within the limit.",
    remedy="Check `understudy status` and the output of the job. If it hangs, report it as a bug.",
)
ANOTHER_LOST = Message(
    "US7092",
    "{wanted} was expected to be lost, but {lost} was",
    cause="An incident followed, but it lost a different worker than the one that the fault targeted.",
    remedy="Check `understudy report`. If nothing else happened to the job, report it as a bug.",
)
NO_DIGEST = Message(
    "US7093",
    "no digest was verified",
    cause="A rank was taken over, and its state was not compared with other state.",
    remedy="Check `understudy report` for the reason.",
)
STEPS_LOST = Message(
    "US7094",
    "steps were lost",
    cause="After the incident the job continued from an earlier step.",
    remedy="Check `understudy report` for the reason.",
)
SEVERAL_INCIDENTS = Message(
    "US7095",
    "{count} incidents instead of one",
    cause="More than one incident followed a single fault.",
    remedy="Check `understudy report`.",
)
OTHERWISE_EXPECTED = Message(
    "US7096",
    "{expected} was expected",
    cause="The outcome of the fault differs from the one in the plan or the registry.",
    remedy="Check `understudy report`. If the outcome is right for this job, give `expect` in the plan.",
)

# Faults inside a worker.
EXCEPTION_IN_SCRIPT = Message(
    "US7110",
    "a fault of understudy chaos: an exception in the script",
    cause="`understudy chaos` was requested to make the script of this rank fail.",
)
EXCEPTION_IN_THREAD = Message(
    "US7111",
    "a fault of understudy chaos: an exception in a thread",
    cause="`understudy chaos` was requested to make a thread of this rank fail.",
)
PID_UNKNOWN = Message(
    "US7075",
    "the process id of worker {worker} on {node} is not known yet, as it is still starting: try again once it is warm",
    cause="A worker has no process id before its agent has started it and reported so.",
    remedy="Try again when `understudy status` shows the worker's process id.",
)
AGENT_ELSEWHERE = Message(
    "US7076",
    "the agent of node {node} is outside of this process namespace: run the command in that namespace",
    cause="The agent's process is not visible from here, usually because this command runs in a container.",
    remedy="Run the command on the node itself, or in the agent's container.",
)

"""Messages of the other commands: chaos, detectors, check-node, certs and tokens, the service, doctor, and versions."""

from __future__ import annotations

from understudy.messages.base import Message

DETECTOR_OFF = Message(
    "US2701",
    "off: disabled in the file",
    cause="The detectors' file lists this detector under off.",
)

DETECTOR_FLOODS = Message(
    "US2702",
    "it reports more than {most} findings in one run, for which an agent disables it",
    cause="The detector returned more evidence in one run than an agent accepts at once.",
    remedy="Make the detector report fewer findings, for example only changes or the most severe one.",
)

NOTHING_FOUND = Message(
    "US2703",
    "nothing was found",
    cause="No detector found anything in this run.",
)

PEER_LISTENS = Message(
    "US2710",
    "listening on {address} for {seconds:g} s, {most} nodes at the same time: understudy check-node --peer {address}",
    cause="`understudy check-node --serve` waits for other nodes that measure the network to this one.",
)

NODE_FAILS = Message(
    "US2711",
    "this node does not pass: {checks}",
    cause="These checks found a fault. The table has the details.",
    remedy="Fix what the checks name, or keep the node out of jobs, and check again.",
)

NODE_PASSES = Message(
    "US2712",
    "this node passes",
    cause="Every check that could run has passed.",
)

NODE_UNTRIED = Message(
    "US2713",
    "this node does not pass: no check could run",
    cause="All checks were skipped or could not run, so nothing is known about the node.",
    remedy="Give fewer --only and --skip, or install what the checks need, as the table lists it.",
)

CHECK_CALLED_OFF = Message(
    "US2714",
    "the check is cancelled",
    cause="The command was interrupted. It has left nothing running.",
)

HOST_NEEDS_SECRET = Message(
    "US2715",
    "{host} is not the loopback address: give both sides the same long random text with --token-file",
    cause="The two sides of the network check authenticate each other with a secret. None is needed if both sides run on one machine.",
    remedy="Generate one, for example with `openssl rand -hex 32`, and give it to both sides.",
)

SECRET_TOO_SHORT = Message(
    "US2716",
    "the secret in --token-file or UNDERSTUDY_TOKEN is too easy to guess: at least {least} characters",
    cause="A secret protects only if it cannot be guessed.",
    remedy="Generate one, for example with `openssl rand -hex 32`.",
)

PLACE_UNUSABLE = Message(
    "US2717",
    "{place}: {reason}",
    cause="The file cannot be read, or the address cannot be listened on.",
    remedy="Correct the path or the address; another process may use the port.",
)

PLAN_NEEDED = Message(
    "US2720",
    "give a plan, or --list; understudy chaos --help shows one",
    cause="`understudy chaos` was called without a plan of faults.",
    remedy="Give a TOML file, or --list for the available faults.",
)

PLAN_UNREADABLE = Message(
    "US2721",
    "{path}: {reason}",
    cause="The file of the plan cannot be read.",
    remedy="Correct the path, or the permissions of the file.",
)

RANKS_UNKNOWN = Message(
    "US2722",
    "the job is still forming: its ranks are not known yet",
    cause="The plan is for a job whose workers have not joined yet.",
    remedy="Wait until `understudy status` shows the ranks.",
)

FAULTS_DONE = Message(
    "US2723",
    "{count} faults, {met} as expected",
    cause="All faults of the plan have occurred, or the run of the plan ended before.",
)

FAULTS_UNEXPLAINED = Message(
    "US2724",
    "incidents without a fault of the plan: {incidents}",
    cause="The job had incidents that no fault of the plan explains. Something else disturbed it.",
    remedy="Read about them in `understudy report`.",
)

FAULT_WAITS = Message(
    "US2725",
    "fault {number}: {fault} on {target} waits for its point",
    cause="The fault is armed, and occurs when the rank reaches the point that the plan names.",
)

FAULT_HAPPENED = Message(
    "US2726",
    "fault {number}: {fault} on {target} at step {step}",
    cause="The fault has occurred. Its outcome is not known yet.",
)

FAULT_OVER = Message(
    "US2727",
    "fault {number}: {fault} on {target}: {outcome}",
    cause="The fault had the expected outcome.",
)

FAULT_UNEXPECTED = Message(
    "US2728",
    "fault {number}: {fault} on {target}: {outcome}. NOT AS EXPECTED: {why}",
    cause="The outcome of the fault differs from the one that the plan, or the fault itself, requires.",
    remedy="Read about the incident in `understudy report`, and read the workers' output.",
)

SECRET_NEEDED_FOR_TOKEN = Message(
    "US2740",
    "a token is derived from the orchestrator's secret: pass it with --token-file (or in UNDERSTUDY_TOKEN)",
    cause="`understudy token` was not given the secret that it derives tokens from.",
    remedy="Give the file that the orchestrator was started with.",
)

AGENT_NEEDS_NODE = Message(
    "US2744",
    "a token of the role agent serves one node: give its name with --node",
    cause="An agent's token names its node, so that one node cannot speak for another.",
    remedy="Make one for each node, with the name that `understudy agent` uses there: its --name, or else the host's name.",
)

NODE_OF_AGENT = Message(
    "US2745",
    "--node is for the role agent, not for {role}",
    cause="Only an agent's token names a node.",
    remedy="Leave out --node.",
)

CERTIFICATE_EXISTS = Message(
    "US2741",
    "{path} already exists: remove it first, or choose another name",
    cause="The file of an authority or a certificate exists, and is not overwritten, because it may be in use.",
    remedy="Move it to another folder, or choose another name.",
)

AUTHORITY_MISSING = Message(
    "US2742",
    "{path} does not exist: create an authority first, with understudy certs init",
    cause="A certificate is signed with the key of an authority, and the folder has none.",
    remedy="Run `understudy certs init` on the folder, or give the folder that has one.",
)

CERTIFICATE_UNWRITTEN = Message(
    "US2743",
    "{reason}",
    cause="The certificate could not be written.",
    remedy="Fix the cause that the message gives.",
)

LISTEN_FORM = Message(
    "US2750",
    "--listen {address}: give HOST:PORT",
    cause="The value has no host, or no port number.",
    remedy="Give for example --listen 10.0.0.5:29400.",
)

AGENT_ENDS = Message(
    "US2751",
    "the agent ends; the jobs that it started continue",
    cause="The agent of a node was ended. Jobs on the node continue, and the next agent with the same --state-dir takes control of them.",
)

DRY_RUN_ANSWERS = Message(
    "US2760",
    "{evidence} of evidence; {answers} of this policy:",
    cause="`understudy policy check --dry-run` has read a journal: for example 12 pieces of evidence, and 3 answers. "
    "The table shows what the policy would have done.",
)

DRY_RUN_NOTHING = Message(
    "US2761",
    "{evidence} of evidence; the policy would not have acted",
    cause="`understudy policy check --dry-run` has read a journal, and no rule of the policy applies to its evidence.",
)

CAN_RUN = Message(
    "US2801",
    "a job can run here",
    cause="`understudy doctor` found that nothing required is missing.",
)

CANNOT_RUN = Message(
    "US2802",
    "no job can run here: see the missing items above",
    cause="At least one finding of `understudy doctor` is about a requirement of every job.",
    remedy="Follow the table for each finding that is marked missing.",
)

TORCH_UNTESTED = Message(
    "US2803",
    "torch {version} is not among the versions that Understudy is tested with ({first} to {last}); run `understudy doctor` to see what "
    "works",
    cause="Understudy uses parts of torch that may change with any minor version.",
    remedy="Run `understudy doctor`, which tests all of them, or install a tested version.",
)

PYTHON_UNTESTED = Message(
    "US2804",
    "{version}: not among the tested versions ({first} to {last})",
    cause="This version of Python is not in the tested range.",
    remedy="Use a Python version in this range.",
)

TORCH_MISSING = Message(
    "US2805",
    "is not installed for {python}",
    cause="This Python has no package torch.",
    remedy="Install torch for the Python that runs the job.",
)

NO_PIDFDS = Message(
    "US2806",
    "cannot be watched by pidfds ({reason})",
    cause="The kernel, or a sandbox around this process, does not support pidfd_open, with which agents detect the end of workers.",
    remedy="Use Linux 5.3 or newer, and allow pidfd_open in the sandbox.",
)

NO_LOOPBACK = Message(
    "US2807",
    "no process can listen on 127.0.0.1 ({reason})",
    cause="The loopback interface is down or not there, as in some containers.",
    remedy="Set it up with `ip link set lo up`.",
)

NO_RUN_DIRECTORIES = Message(
    "US2808",
    "cannot be made in {folder} ({reason})",
    cause="The current folder cannot be written to.",
    remedy="Change to another folder, or give --run-dir.",
)

TORCH_TIMED_OUT = Message(
    "US2809",
    "could not be tested within {seconds:g} s",
    cause="Importing and testing torch took too long, often because of a slow file system or a GPU that does not respond.",
    remedy="Try `python -c 'import torch'` by itself.",
)

TORCH_ENDED_PROCESS = Message(
    "US2810",
    "ended the process that tests it ({signal})",
    cause="Importing or using torch ended its process by a signal: the installation does not match this machine.",
    remedy="Install torch again, and try `python -c 'import torch'` by itself.",
)

TORCH_UNUSABLE = Message(
    "US2811",
    "cannot be imported or tested: {reason}",
    cause="The process that tests torch failed with this error.",
    remedy="Install torch again, and try `python -c 'import torch'` by itself.",
)

NUMBER_TOO_LARGE = Message(
    "US2901",
    "{field} is a number beyond 64 bits",
    cause="A message or a request holds a number that a journal cannot store.",
    remedy="Send a smaller number.",
)

NOT_A_TIME = Message(
    "US2902",
    "{field} is {value!r}, which is not a time",
    cause="A message or a request holds a time or duration that is not finite, or that no calendar has.",
    remedy="Send seconds since 1970, or a duration in seconds.",
)

NAME_UNPRINTABLE = Message(
    "US2903",
    "{field} {value} has characters that cannot be printed",
    cause="A name holds control characters or undecodable bytes, so it could not be distinguished from other names when it is shown.",
    remedy="Use printable characters in names.",
)

NAME_TOO_LONG = Message(
    "US2904",
    "{field} {value}... is longer than {most} bytes",
    cause="A name is longer than the journal and terminals can hold.",
    remedy="Use a shorter name.",
)

NO_CERTIFICATE = Message(
    "US2905",
    "{path} does not contain a certificate",
    cause="The file does not contain a certificate in PEM form.",
    remedy="Give the orchestrator's certificate, which begins with -----BEGIN CERTIFICATE-----.",
)

JOB_REPORTS = Message(
    "US2906",
    "the job: {message}",
    cause="The message of the job into which faults were injected, as `understudy status` shows it.",
)

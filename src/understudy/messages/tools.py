"""Messages of the other commands: chaos, detectors, check-node, certs and tokens, the service, doctor, and versions."""

from __future__ import annotations

from understudy.messages.base import Message

DETECTOR_OFF = Message(
    "US2701",
    "off: the file says so",
    cause="The file of detectors names this one under off.",
)

DETECTOR_FLOODS = Message(
    "US2702",
    "it finds more than {most} things in one look, for which an agent leaves it out",
    cause="A look of this detector returned more evidence than an agent takes at once.",
    remedy="Let the detector report fewer things, for instance only what has changed or the worst of it.",
)

NOTHING_FOUND = Message(
    "US2703",
    "nothing was found",
    cause="No detector has found anything in this look.",
)

PEER_LISTENS = Message(
    "US2710",
    "listening on {address} for {seconds:g} s, {most} nodes at the same time: understudy check-node --peer {address}",
    cause="`understudy check-node --serve` waits for other nodes that measure the network to this one.",
)

NODE_FAILS = Message(
    "US2711",
    "this node does not pass: {checks}",
    cause="These checks have found something wrong. The table says what.",
    remedy="Mend what the checks name, or keep the node out of jobs, and check again.",
)

NODE_PASSES = Message(
    "US2712",
    "this node passes",
    cause="Every check that could be run has passed.",
)

NODE_UNTRIED = Message(
    "US2713",
    "this node does not pass: nothing of it could be tried out",
    cause="All checks were left out or could not be run, so nothing speaks for the node.",
    remedy="Give fewer --only and --skip, or install what the checks need; the table says what.",
)

CHECK_CALLED_OFF = Message(
    "US2714",
    "the check is called off",
    cause="The command was interrupted. It has left nothing running.",
)

HOST_NEEDS_SECRET = Message(
    "US2715",
    "{host} is not the loopback address: give both sides the same long random text with --token-file",
    cause="The two sides of the network check prove to each other by a secret that they belong together. Only on one machine they do "
    "without.",
    remedy="Make one, for instance with `openssl rand -hex 32`, and give it to both sides.",
)

SECRET_TOO_SHORT = Message(
    "US2716",
    "the secret in --token-file or UNDERSTUDY_TOKEN is too easy to guess: at least {least} characters",
    cause="A secret protects only if it cannot be guessed.",
    remedy="Make one, for instance with `openssl rand -hex 32`.",
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
    remedy="Give a TOML file, or --list for the faults that there are.",
)

PLAN_UNREADABLE = Message(
    "US2721",
    "{path}: {reason}",
    cause="The file of the plan cannot be read.",
    remedy="Correct the path, or the permissions of the file.",
)

RANKS_UNKNOWN = Message(
    "US2722",
    "the job forms still: its ranks are not known yet",
    cause="The plan was to be laid out for a job whose workers have not joined yet.",
    remedy="Wait until `understudy status` shows the ranks.",
)

FAULTS_DONE = Message(
    "US2723",
    "{count} faults, {met} as expected",
    cause="All faults of the plan have happened, or the run of the plan has ended before.",
)

FAULTS_UNEXPLAINED = Message(
    "US2724",
    "incidents that belong to no fault: {incidents}",
    cause="The job has had incidents that none of the plan's faults explains. Something else disturbed it.",
    remedy="Look at them in `understudy report`.",
)

FAULT_WAITS = Message(
    "US2725",
    "fault {number}: {fault} on {target} waits for its point",
    cause="The fault is armed, and happens when the rank comes to the point that the plan names.",
)

FAULT_HAPPENED = Message(
    "US2726",
    "fault {number}: {fault} on {target} at step {step}",
    cause="The fault has happened. What comes of it is not known yet.",
)

FAULT_OVER = Message(
    "US2727",
    "fault {number}: {fault} on {target}: {outcome}",
    cause="The fault has had an outcome, and it is the expected one.",
)

FAULT_UNEXPECTED = Message(
    "US2728",
    "fault {number}: {fault} on {target}: {outcome}. NOT AS EXPECTED: {why}",
    cause="The fault has had another outcome than the plan, or the fault itself, says that it must have.",
    remedy="Look at the incident in `understudy report`, and at the workers' output.",
)

SECRET_NEEDED_FOR_TOKEN = Message(
    "US2740",
    "a token is made from the orchestrator's secret: give it with --token-file (or in UNDERSTUDY_TOKEN)",
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
    "{path} is there already: take it away first, or choose another name",
    cause="The file of an authority or a certificate exists, and is not written over, because others may rely on it.",
    remedy="Move it away, or choose another name.",
)

AUTHORITY_MISSING = Message(
    "US2742",
    "{path} is not there: make an authority first, with understudy certs init",
    cause="A certificate is signed with the key of an authority, and the folder has none.",
    remedy="Run `understudy certs init` on the folder, or give the folder that has one.",
)

CERTIFICATE_UNWRITTEN = Message(
    "US2743",
    "{reason}",
    cause="The certificate could not be written.",
    remedy="Do what the reason says.",
)

LISTEN_FORM = Message(
    "US2750",
    "--listen {address}: give HOST:PORT",
    cause="The value has no host, or no port number.",
    remedy="Give for instance --listen 10.0.0.5:29400.",
)

AGENT_ENDS = Message(
    "US2751",
    "the agent ends; what it has started goes on",
    cause="The agent of a node was ended. Jobs on the node go on, and the next agent with the same --state-dir takes them up.",
)

DRY_RUN_ANSWERS = Message(
    "US2760",
    "{evidence} of evidence; {answers} of this policy:",
    cause="`understudy policy check --dry-run` has gone through a journal. The table says what the policy would have done.",
)

DRY_RUN_NOTHING = Message(
    "US2761",
    "{evidence} of evidence; nothing would have followed",
    cause="`understudy policy check --dry-run` has gone through a journal, and no rule of the policy applies to what is in it.",
)

CAN_RUN = Message(
    "US2801",
    "a job can run here",
    cause="`understudy doctor` has found nothing that a job needs and that is missing.",
)

CANNOT_RUN = Message(
    "US2802",
    "no job can run here: see what is missing above",
    cause="At least one finding of `understudy doctor` is about something without which no job runs.",
    remedy="Do what the table says for each finding that is marked missing.",
)

TORCH_UNTESTED = Message(
    "US2803",
    "torch {version} is not among the versions that Understudy is tested with ({first} to {last}); `understudy doctor` says what works",
    cause="Understudy uses parts of torch that may change with any minor version.",
    remedy="Run `understudy doctor`, which tries out all of them, or install a version that is tested.",
)

PYTHON_UNTESTED = Message(
    "US2804",
    "{version}: not among those that are tested ({first} to {last})",
    cause="This version of Python is not in the range that the tests run with.",
    remedy="Use a Python of the range.",
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
    cause="The kernel, or a sandbox around this process, has no pidfd_open, by which agents learn of the end of workers.",
    remedy="Use Linux 5.3 or newer, and allow pidfd_open in the sandbox.",
)

NO_LOOPBACK = Message(
    "US2807",
    "nobody can listen on 127.0.0.1 ({reason})",
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
    "could not be tried out within {seconds:g} s",
    cause="Importing and trying out torch took too long, often because of a slow file system or a GPU that does not answer.",
    remedy="Try `python -c 'import torch'` by itself.",
)

TORCH_ENDED_PROCESS = Message(
    "US2810",
    "ended the process that tries it out ({signal})",
    cause="Importing or using torch ended its process by a signal: the installation does not fit this machine.",
    remedy="Install torch again, and try `python -c 'import torch'` by itself.",
)

TORCH_UNUSABLE = Message(
    "US2811",
    "cannot be imported or tried out: {reason}",
    cause="The process that tries out torch failed with this error.",
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
    "{field} is {value!r}, which is no time",
    cause="A message or a request holds a time or duration that is not finite, or that no calendar has.",
    remedy="Send seconds since 1970, or a duration in seconds.",
)

NAME_UNPRINTABLE = Message(
    "US2903",
    "{field} {value} has characters that cannot be printed",
    cause="A name holds control characters or undecodable bytes, so that it could not be told from another one when it is shown.",
    remedy="Use printable characters in names.",
)

NAME_TOO_LONG = Message(
    "US2904",
    "{field} {value}... is longer than {most} bytes",
    cause="A name is longer than the journal and the terminals take it.",
    remedy="Use a shorter name.",
)

NO_CERTIFICATE = Message(
    "US2905",
    "{path} holds no certificate",
    cause="The file has no certificate in PEM form.",
    remedy="Give the orchestrator's certificate, which begins with -----BEGIN CERTIFICATE-----.",
)

JOB_SAYS = Message(
    "US2906",
    "the job: {message}",
    cause="The message of the job on which faults were injected, as `understudy status` shows it.",
)

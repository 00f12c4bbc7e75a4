"""Messages of commands that ask or tell a job something: which job is meant, why there is no answer, and what was asked for."""

from __future__ import annotations

from understudy.messages.base import Message

ADDRESS_UNKNOWN = Message(
    "US2301",
    "the orchestrator has not said where it listens",
    cause="The run directory does not name the address of an orchestrator: the job has not begun to serve yet, or never did.",
    remedy="Wait a moment and try again. If the job has ended, its status and report come from the journal.",
)

NONE_LEADS = Message(
    "US2302",
    "none of {urls} leads now",
    cause="None of these orchestrators answers as the one that leads. Some may be away, or they are about to agree on one of them.",
    remedy="Try again in some seconds. If that does not help, look whether a majority of them runs.",
)

NO_ANSWER = Message(
    "US2303",
    "{url} does not answer: {reason}",
    cause="No connection to the orchestrator could be made, or it broke.",
    remedy="Check the address, whether the orchestrator runs, and with https whether --tls names its certificate or authority.",
)

OF_ANOTHER = Message(
    "US2380",
    "the answer has HTTP status {status} and is not an orchestrator's",
    cause="Something else listens there, or answers in the orchestrator's place while it is away: an ingress, a proxy.",
    remedy="Wait until the orchestrator is back, or correct the address.",
)
NOT_RUNNING = Message(
    "US2304",
    "no job is running in {path} ({reason})",
    cause="The orchestrator of this run directory does not answer, so the job has ended or has not begun to serve.",
    remedy="Name another run with --run-dir, or look at how this one ended with `understudy status`.",
)

NO_JOURNAL = Message(
    "US2305",
    "{path} has no journal: the job did not start, or its orchestrator is on another node ({reason})",
    cause="The orchestrator does not answer, and this folder does not hold the record of the job. Only nodes with an orchestrator have "
    "one.",
    remedy="Ask on the node that runs the orchestrator, or name the right folder with --run-dir.",
)

URL_FORM = Message(
    "US2307",
    "--orchestrator {url}: give a URL such as http://host:29400, or several with commas between them",
    cause="The text is no address of an orchestrator: http or https, a host and a port, and no path.",
    remedy="Correct --orchestrator or UNDERSTUDY_ORCHESTRATOR.",
)

TRUST_UNUSABLE = Message(
    "US2308",
    "--tls {path}: {reason}",
    cause="The file or folder holds no certificate that can be read, or a key that does not belong to its certificate.",
    remedy="Give the orchestrator's certificate, or a folder that `understudy certs` has made.",
)

FILE_UNREADABLE = Message(
    "US2309",
    "{path}: {reason}",
    cause="A file that the command was given cannot be read.",
    remedy="Correct the path, or the permissions of the file.",
)

JOB_WITHOUT_ORCHESTRATOR = Message(
    "US2310",
    "--job needs --orchestrator (or UNDERSTUDY_ORCHESTRATOR)",
    cause="A job of a service was named, and not the service.",
    remedy="Give the address of the orchestrator, or leave out --job for the latest run in this folder.",
)

NO_JOBS = Message(
    "US2311",
    "{url} has no jobs yet",
    cause="No job was ever submitted to this orchestrator, or none that this token may see.",
    remedy="Submit one with `understudy run --orchestrator`, or give a token for the job.",
)

RUN_DIRECTORY_TAKEN = Message(
    "US2312",
    "{path} holds another run already: give an empty or a new folder with --run-dir",
    cause="A run directory belongs to one run. This one has the files of another.",
    remedy="Give another folder with --run-dir, or none for a new one.",
)

NO_RUN_DIRECTORY = Message(
    "US2379",
    "the run directory {path} cannot be made: {reason}; name a folder that can be written with --run-dir",
    cause="The folder in which the command was started is read-only, or its disk is full.",
    remedy="Give a folder on a disk that all processes of this node can write to, with --run-dir.",
)

NOT_A_RUN = Message(
    "US2313",
    "{path} is not the folder of a run (it has no {file})",
    cause="--run-dir names a folder that `understudy run` has not made.",
    remedy="Give the folder that `understudy run` has printed when the job started.",
)

NO_RUN = Message(
    "US2314",
    "no run below {folder}: go to the folder where it was started, or give --run-dir",
    cause="Without --run-dir the latest run at most two folders below the current one is meant, and there is none.",
    remedy="Change to the folder where the job was started, or give its run directory with --run-dir.",
)

ORCHESTRATOR_NEEDED = Message(
    "US2315",
    "which orchestrator? Give --orchestrator URL, or set UNDERSTUDY_ORCHESTRATOR",
    cause="The command is about the jobs of a service, and none was named.",
    remedy="Give the address of its orchestrator.",
)

JOURNAL_UNUSABLE = Message(
    "US2316",
    "{path}: {reason}",
    cause="The journal of this run cannot be read: it has nothing of a job yet, or a newer Understudy has written it.",
    remedy="Use the version that has written it, or wait until the job has begun.",
)

MIGRATES = Message(
    "US2320",
    "rank {rank} moves to a spare at the next step boundary; understudy report shows when it has",
    cause="`understudy migrate` was accepted.",
)

BELIEVED = Message(
    "US2321",
    "rank {rank} is believed; understudy status shows how the job goes on",
    cause="`understudy believe` was accepted: the state of this rank counts as the right one.",
)

TAINTED = Message(
    "US2322",
    "{what} is tainted",
    cause="`understudy taint` was accepted: the node gets no new ranks or spares.",
)

TRUSTED = Message(
    "US2323",
    "{what} is trusted again",
    cause="`understudy taint --remove` was accepted: the node may get ranks and spares again.",
)

DEVICE_OF_WHICH_JOB = Message(
    "US2398",
    "{device} of which job? A single device is tainted for one job: name it with --job",
    cause="`understudy taint --device` was asked for without a job. Only a job knows on which devices its ranks compute.",
    remedy="Give --job, or taint the node.",
)

JOB_STOPS = Message(
    "US2324",
    "the job is stopping",
    cause="`understudy stop` was accepted.",
)

NAMED_JOB_STOPS = Message(
    "US2325",
    "job {job} is stopping",
    cause="`understudy cancel` was accepted.",
)

SUBMITTED = Message(
    "US2330",
    "job {job} is submitted to {url}: {ranks}, {spares} spares",
    cause="The orchestrator has taken the job. It starts as soon as there are slots for it.",
)

DETACHED_AT_ONCE = Message(
    "US2331",
    "understudy logs --follow {job} shows what it prints, understudy cancel {job} ends it",
    cause="The job was submitted with --detach, so the command does not wait for it.",
)

DETACHED = Message(
    "US2332",
    "detached; the job goes on. understudy logs --follow {job} attaches again, understudy cancel {job} ends it",
    cause="The command that followed the job was interrupted, for instance with Ctrl-C. That does not end the job.",
)

FOLLOWING_GIVEN_UP = Message(
    "US2333",
    "{reason}. The job goes on as far as it can; understudy logs --follow {job} attaches again",
    cause="The orchestrator has not answered for a minute.",
    remedy="Look whether the orchestrator runs, and attach again.",
)

NOTHING_LISTED = Message(
    "US2334",
    "none",
    cause="The orchestrator has no jobs, or no nodes, to list.",
)

DRAIN_BEGINS = Message(
    "US2340",
    "the drain of {node} has begun (jobs there: {jobs}): understudy drain {node} --wait waits until nothing is there",
    cause="`understudy drain` was accepted: ranks leave the node for spares elsewhere.",
)

DRAIN_CONTINUES = Message(
    "US2341",
    "the drain of {node} goes on; understudy undrain {node} takes it back",
    cause="The command that waited for the drain was interrupted. That does not end the drain.",
)

DRAIN_LATE = Message(
    "US2342",
    "not empty: {node}; the deadline is over, and {ranks} left there. No new ranks and spares go there",
    cause="Not all ranks had a place elsewhere before the deadline, and --then keep leaves them where they are.",
    remedy="Start further spares on other nodes, or drain again with --then lose.",
)

DRAINED = Message(
    "US2343",
    "drained: {node}; nothing is there any more",
    cause="All ranks and spares have left the node. It may be switched off.",
)

UNDRAINED = Message(
    "US2344",
    "the drain of {node} is taken back (jobs there: {jobs})",
    cause="`understudy undrain` was accepted: spares may start on the node again.",
)

DRAIN_PROGRESS = Message(
    "US2345",
    "node {node}: {left}{waits_for}",
    cause="The drain goes on. Ranks that have no place elsewhere yet wait for the reason that is shown.",
)

DEADLINE_FORM = Message(
    "US2346",
    "--deadline {value}: {reason}",
    cause="The value is no duration such as 90s, 10m or 2h.",
    remedy="Give a number and a unit: ms, s, m, h or d.",
)

DEADLINE_RANGE = Message(
    "US2347",
    "--deadline {value}: {value} is not between 1 ms and a year",
    cause="The duration is too short or too long for a deadline.",
    remedy="Give a duration between 1 ms and a year.",
)

DRILL_BEGINS = Message(
    "US2350",
    "drill {number} begins; understudy status shows its verdict",
    cause="`understudy drill` was accepted without --wait.",
)

JOB_ENDED = Message(
    "US2351",
    "the job has ended: {reason}",
    cause="The job ended before the drill that was waited for had a verdict.",
)

STATE_UNKNOWN = Message(
    "US2355",
    "nothing is known yet: ranks tell what they have when they are compared, for the first time behind the first step",
    cause="`understudy status --state` was asked before the first step was committed.",
    remedy="Ask again after the first step.",
)

STATE_AND_TOPOLOGY = Message(
    "US2357",
    "--state and --topology are two questions: ask one at a time",
    cause="`understudy status` was given both options.",
    remedy="Ask twice, once with each option.",
)
GROUPS_UNKNOWN = Message(
    "US2358",
    "no group of ranks is known yet: ranks report their groups when they are compared, for the first time before the first step",
    cause="`understudy status --topology` was asked while the script still sets up, or before ranks were given out.",
    remedy="Ask again after the first step.",
)
NOTHING_LOST = Message(
    "US2356",
    "nothing was lost, nothing was moved",
    cause="The job has had no incident.",
)

DRILL_RUNS = Message(
    "US2360",
    "rank {rank} is being compared with spare {worker}",
    cause="A drill is under way: a spare computes a step of this rank in addition to the rank itself.",
)

DRILL_PROVEN = Message(
    "US2361",
    "rank {rank}: proven at step {step} ({compared} digests and {collectives} collectives, {moved} moved; the rank paused for "
    "{pause}){detail}",
    cause="A spare has computed the same bits as the rank in this step, so the rank would survive a loss there.",
)

DRILL_PROVEN_IN_PART = Message(
    "US2362",
    "rank {rank}: proven in part at step {step} ({compared} digests and {collectives} collectives, {moved} moved, {left_out} collectives "
    "beyond --drill-bytes; the rank paused for {pause}){detail}",
    cause="What was compared was the same, but the results of some collectives were larger than --drill-bytes allows and were not "
    "compared.",
    remedy="Give a larger --drill-bytes if there is memory for it.",
)

DRILL_DIFFERS = Message(
    "US2363",
    "rank {rank}: not survivable as it is (step {step}){detail}",
    cause="A spare with the rank's registered state has computed something else than the rank. A newcomer in its place would train "
    "differently.",
    remedy="Register what the message names with job.register or job.state, and drill again.",
)

DRILL_IRREPRODUCIBLE = Message(
    "US2364",
    "rank {rank}: not reproducible on this device (step {step}){detail}",
    cause="The spare has computed the step twice from the same state, and the two results differ. Operations of the script are not "
    "deterministic on this device.",
    remedy="Use deterministic algorithms (torch.use_deterministic_algorithms) where a recovery has to be bitwise.",
)

DRILL_BROKEN = Message(
    "US2365",
    "rank {rank}: not proven{detail}",
    cause="The drill ended without a verdict, for instance because a rank was lost meanwhile. Nothing is known about the rank.",
    remedy="Drill again.",
)

DRILL_OTHER = Message(
    "US2366",
    "rank {rank}: {verdict}{detail}",
    cause="The orchestrator names a verdict that this version of the command does not know.",
    remedy="Use a command line of the orchestrator's version.",
)

NODE_EMPTY = Message(
    "US2370",
    "node {node} is empty",
    cause="The drain of this node is over.",
)

NODE_LATE = Message(
    "US2371",
    "node {node}: the deadline is over; {ranks}, which stay",
    cause="The deadline of a drain is over, and these ranks had no place elsewhere.",
    remedy="Start further spares on other nodes, or drain again with --then lose.",
)

NODE_DRAINS = Message(
    "US2372",
    "node {node}: {ranks}{deadline}{waits_for}",
    cause="A drain of this node is under way. Ranks that have no place elsewhere yet wait for the reason that is shown.",
)

ABOUT_NODE = Message(
    "US2373",
    "node {node}: {reason}",
    cause="What was asked of this node was refused, or nobody answered, for the reason that is named.",
)

DRAIN_PLAN = Message(
    "US2374",
    "job {job}: {ranks} would leave; spares elsewhere: {warm} warm, {coming} to come; pauses: {pauses}{waiting}",
    cause="`understudy drain --dry-run` says what the drain would take. All ranks that have a warm spare move in one pause; of a job whose "
    "ranks would all leave, one stays until the others have moved.",
)

DRAIN_PLAN_REFUSED = Message(
    "US2375",
    "the drain would be refused for job {job}: {reason}",
    cause="`understudy drain --dry-run` found that the drain would be refused, for the reason that is named.",
    remedy="Start further spares on other nodes, or drain fewer nodes. --force drains all the same.",
)

DRAIN_WHAT = Message(
    "US2376",
    "name a node, or a failure domain with --domain",
    cause="`understudy drain` needs to know what is to be empty.",
    remedy="`understudy status --topology` and `understudy nodes` name nodes and domains.",
)

NO_SUCH_DOMAIN = Message(
    "US2377",
    "no node is in the failure domain {domain}; there are: {known}",
    cause="`understudy drain --domain` names a failure domain that no node has.",
    remedy="`understudy status --topology` and `understudy nodes` name domains.",
)

NO_JOB_THERE = Message(
    "US2378",
    "no job is on {node}, so nothing would move",
    cause="`understudy drain --dry-run` found no job with anything on these nodes.",
)

"""Messages of commands that query a job or send it a request: which job is meant, why there is no answer, and what was requested."""

from __future__ import annotations

from understudy.messages.base import Message

ADDRESS_UNKNOWN = Message(
    "US2301",
    "the orchestrator has not reported its address",
    cause="The run directory does not contain the address of an orchestrator: the job does not serve requests yet, or never did.",
    remedy="Wait a moment and try again. Status and report of a job that has ended come from the journal.",
)

NONE_LEADS = Message(
    "US2302",
    "none of {urls} leads now",
    cause="None of these orchestrators answers as the leader. Some may be unreachable, or they are still electing one.",
    remedy="Try again in a few seconds. If that does not help, check that a majority of them is running.",
)

NO_ANSWER = Message(
    "US2303",
    "{url} does not answer: {reason}",
    cause="No connection to the orchestrator could be made, or it failed.",
    remedy="Check the address, that the orchestrator is running, and with https that --tls names its certificate or authority.",
)

OF_ANOTHER = Message(
    "US2380",
    "the answer has HTTP status {status} and does not come from an orchestrator",
    cause="Another program listens at this address, or an ingress or proxy answers while the orchestrator is unreachable.",
    remedy="Wait until the orchestrator is back, or correct the address.",
)
NOT_RUNNING = Message(
    "US2304",
    "no job is running in {path} ({reason})",
    cause="The orchestrator of this run directory does not respond, so the job has ended or does not serve requests yet.",
    remedy="Name another run with --run-dir, or see how this one ended with `understudy status`.",
)

NO_JOURNAL = Message(
    "US2305",
    "{path} has no journal: the job did not start, or its orchestrator is on another node ({reason})",
    cause="The orchestrator does not respond, and this folder does not hold the record of the job. Only nodes with an orchestrator have "
    "one.",
    remedy="Run the command on the node that runs the orchestrator, or name the right folder with --run-dir.",
)

URL_FORM = Message(
    "US2307",
    "--orchestrator {url}: give a URL such as http://host:29400, or several separated by commas",
    cause="The text is not the address of an orchestrator: http or https, a host and a port, and no path.",
    remedy="Correct --orchestrator or UNDERSTUDY_ORCHESTRATOR.",
)

TRUST_UNUSABLE = Message(
    "US2308",
    "--tls {path}: {reason}",
    cause="The file or folder contains no readable certificate, or a key that does not match its certificate.",
    remedy="Give the orchestrator's certificate, or a folder that `understudy certs` created.",
)

FILE_UNREADABLE = Message(
    "US2309",
    "{path}: {reason}",
    cause="A file that was passed to the command cannot be read.",
    remedy="Correct the path, or the permissions of the file.",
)

JOB_WITHOUT_ORCHESTRATOR = Message(
    "US2310",
    "--job needs --orchestrator (or UNDERSTUDY_ORCHESTRATOR)",
    cause="A job of a service was named, but not the service.",
    remedy="Give the address of the orchestrator, or leave out --job for the latest run in this folder.",
)

NO_JOBS = Message(
    "US2311",
    "{url} has no jobs yet",
    cause="No job was ever submitted to this orchestrator, or none that this token may read.",
    remedy="Submit one with `understudy run --orchestrator`, or give a token for the job.",
)

RUN_DIRECTORY_TAKEN = Message(
    "US2312",
    "{path} already holds another run: give an empty or a new folder with --run-dir",
    cause="A run directory belongs to one run. This one has the files of another run.",
    remedy="Give another folder with --run-dir, or leave out --run-dir for a new one.",
)

NO_RUN_DIRECTORY = Message(
    "US2379",
    "the run directory {path} cannot be made: {reason}; use --run-dir to name a writable folder",
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
    "no run in or below {folder}: change to the folder where it was started, or give --run-dir",
    cause="Without --run-dir the command uses the latest run at most two folders below the current one, and there is none.",
    remedy="Change to the folder where the job was started, or give its run directory with --run-dir.",
)

ORCHESTRATOR_NEEDED = Message(
    "US2315",
    "no orchestrator is named: give --orchestrator URL, or set UNDERSTUDY_ORCHESTRATOR",
    cause="The command is about the jobs of a service, and none was named.",
    remedy="Give the address of its orchestrator.",
)

JOURNAL_UNUSABLE = Message(
    "US2316",
    "{path}: {reason}",
    cause="The journal of this run cannot be read: it does not contain a job yet, or a newer Understudy wrote it.",
    remedy="Use the version that wrote it, or wait until the job has begun.",
)

MIGRATES = Message(
    "US2320",
    "rank {rank} moves to a spare at the next step boundary; understudy report shows when it has moved",
    cause="`understudy migrate` was accepted.",
)

BELIEVED = Message(
    "US2321",
    "rank {rank} is accepted as right; understudy status shows how the job continues",
    cause="`understudy resolve` was accepted: the state of this rank counts as the right one.",
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
    "a single device can be tainted only for one job: name the job of {device} with --job",
    cause="`understudy taint --device` was requested without a job. Only a job knows on which devices its ranks compute.",
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
    cause="The orchestrator has accepted the job. It starts as soon as there are slots for it.",
)

DETACHED_AT_ONCE = Message(
    "US2331",
    "understudy logs --follow {job} shows its output, understudy cancel {job} ends it",
    cause="The job was submitted with --detach, so the command does not wait for it.",
)

DETACHED = Message(
    "US2332",
    "detached; the job continues. understudy logs --follow {job} attaches again, understudy cancel {job} ends it",
    cause="The command that followed the job was interrupted, for example with Ctrl-C. That does not end the job.",
)

FOLLOWING_GIVEN_UP = Message(
    "US2333",
    "{reason}. The job continues as far as it can; understudy logs --follow {job} attaches again",
    cause="The orchestrator has not responded for a minute.",
    remedy="Check that the orchestrator is running, and attach again.",
)

NOTHING_LISTED = Message(
    "US2334",
    "none",
    cause="The orchestrator has no jobs, or no nodes, to list.",
)

DRAIN_BEGINS = Message(
    "US2340",
    "the drain of {node} has begun (jobs there: {jobs}): run understudy drain {node} --wait to wait until the node is empty",
    cause="`understudy drain` was accepted: ranks leave the node for spares on other nodes.",
)

DRAIN_CONTINUES = Message(
    "US2341",
    "the drain of {node} continues; run understudy undrain {node} to cancel it",
    cause="The command that was waiting for the drain was interrupted. That does not end the drain.",
)

DRAIN_LATE = Message(
    "US2342",
    "not empty: {node}; the deadline has passed, and {ranks} left there. It gets no new ranks or spares",
    cause="Not all ranks had a place on another node before the deadline, and --then keep leaves them where they are.",
    remedy="Start more spares on other nodes, or drain again with --then lose.",
)

DRAINED = Message(
    "US2343",
    "drained: {node} is empty",
    cause="All ranks and spares have left the node. It may be switched off.",
)

UNDRAINED = Message(
    "US2344",
    "the drain of {node} is cancelled (jobs there: {jobs})",
    cause="`understudy undrain` was accepted: spares may start on the node again.",
)

DRAIN_PROGRESS = Message(
    "US2345",
    "node {node}: {left}{waits_for}",
    cause="The drain continues. Ranks without a place on another node wait for the reason that is shown.",
)

DEADLINE_FORM = Message(
    "US2346",
    "--deadline {value}: {reason}",
    cause="The value is not a duration such as 90s, 10m or 2h.",
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
    cause="The job ended before the drill had a verdict.",
)

STATE_UNKNOWN = Message(
    "US2355",
    "the state is not known yet: ranks report it when they are compared, for the first time after the first step",
    cause="`understudy status --state` was called before the first step was committed.",
    remedy="Try again after the first step.",
)

STATE_AND_TOPOLOGY = Message(
    "US2357",
    "--state and --topology cannot be combined: give one at a time",
    cause="`understudy status` was given both options.",
    remedy="Run the command twice, once with each option.",
)
GROUPS_UNKNOWN = Message(
    "US2358",
    "no group of ranks is known yet: ranks report their groups when they are compared, for the first time before the first step",
    cause="`understudy status --topology` was called while the script is still in its setup, or before ranks were assigned.",
    remedy="Try again after the first step.",
)
NOTHING_LOST = Message(
    "US2356",
    "no rank was lost or moved",
    cause="The job has had no incident.",
)

DRILL_RUNS = Message(
    "US2360",
    "rank {rank} is being compared with spare {worker}",
    cause="A drill is under way: a spare computes a step of this rank in parallel with the rank.",
)

DRILL_PROVEN = Message(
    "US2361",
    "rank {rank}: the drill passed at step {step} ({compared} digests and {collectives} collectives, {moved} moved; the rank paused for "
    "{pause}){detail}",
    cause="A spare computed the same bits as the rank in this step, so the job would survive a loss of the rank there.",
)

DRILL_PROVEN_IN_PART = Message(
    "US2362",
    "rank {rank}: the drill partly passed at step {step} ({compared} digests and {collectives} collectives, {moved} moved, {left_out} "
    "collectives beyond --drill-bytes; the rank paused for {pause}){detail}",
    cause="Everything that was compared was the same, but the results of some collectives were larger than --drill-bytes allows and were "
    "not compared.",
    remedy="Raise --drill-bytes if there is memory for it.",
)

DRILL_DIFFERS = Message(
    "US2363",
    "rank {rank}: the job would not survive its loss (step {step}){detail}",
    cause="A spare with the rank's registered state computed a different result than the rank. A newcomer would train differently.",
    remedy="Register what the message names with job.register or job.state, and drill again.",
)

DRILL_IRREPRODUCIBLE = Message(
    "US2364",
    "rank {rank}: not reproducible on this device (step {step}){detail}",
    cause="The spare computed the step twice from the same state, and the two results differ. Operations of the script are not "
    "deterministic on this device.",
    remedy="Use deterministic algorithms (torch.use_deterministic_algorithms) if recoveries have to be bitwise identical.",
)

DRILL_BROKEN = Message(
    "US2365",
    "rank {rank}: the drill has no verdict{detail}",
    cause="The drill ended without a verdict, for example because a rank was lost in the meantime. Nothing is known about the rank.",
    remedy="Drill again.",
)

DRILL_OTHER = Message(
    "US2366",
    "rank {rank}: {verdict}{detail}",
    cause="The orchestrator reports a verdict that this version of the command does not know.",
    remedy="Run the command with the same version of Understudy as the orchestrator.",
)

NODE_EMPTY = Message(
    "US2370",
    "node {node} is empty",
    cause="The drain of this node is over.",
)

NODE_LATE = Message(
    "US2371",
    "node {node}: the deadline has passed; {ranks}. They are not moved",
    cause="The deadline of a drain has passed, and these ranks had no place on another node.",
    remedy="Start more spares on other nodes, or drain again with --then lose.",
)

NODE_DRAINS = Message(
    "US2372",
    "node {node}: {ranks}{deadline}{waits_for}",
    cause="This node is being drained. Ranks without a place on another node wait for the reason that is shown.",
)

ABOUT_NODE = Message(
    "US2373",
    "node {node}: {reason}",
    cause="The request about this node was refused, or was not answered, for the reason that is named.",
)

DRAIN_PLAN = Message(
    "US2374",
    "job {job}: {ranks} would leave; spares on other nodes: {warm} warm, {coming} expected; pauses: {pauses}{waiting}",
    cause="`understudy drain --dry-run` shows what the drain would need. All ranks that have a warm spare move in one pause; of a job "
    "whose ranks would all leave, one stays until the others have moved.",
)

DRAIN_PLAN_REFUSED = Message(
    "US2375",
    "the drain would be refused for job {job}: {reason}",
    cause="`understudy drain --dry-run` found that the drain would be refused, for the reason that is named.",
    remedy="Start more spares on other nodes, or drain fewer nodes. To drain anyway, use --force.",
)

DRAIN_WHAT = Message(
    "US2376",
    "name a node, or a failure domain with --domain",
    cause="`understudy drain` needs to know which nodes are to be emptied.",
    remedy="Run `understudy status --topology` or `understudy nodes` to list nodes and domains.",
)

NO_SUCH_DOMAIN = Message(
    "US2377",
    "no node is in the failure domain {domain}; there are: {known}",
    cause="`understudy drain --domain` names a failure domain that no node has.",
    remedy="Run `understudy status --topology` or `understudy nodes` to list domains.",
)

NO_JOB_THERE = Message(
    "US2378",
    "no job runs on {node}, so nothing would move",
    cause="`understudy drain --dry-run` found no job with anything on these nodes.",
)

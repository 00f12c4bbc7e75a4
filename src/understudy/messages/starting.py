"""Messages about the start of a job on a node: its secret, certificates, scheduler and pod, and the processes that are started."""

from __future__ import annotations

from understudy.messages.base import Message

TOKEN_FILE_UNREADABLE = Message(
    "US2160",
    "--token-file {path}: {reason}",
    cause="The file with the secret or token cannot be read.",
    remedy="Correct the path, or the permissions of the file.",
)

TOKEN_FILE_EMPTY = Message(
    "US2161",
    "--token-file {path} is empty",
    cause="The file has no text but white space.",
    remedy="Write the job's secret into it, the same on every node.",
)

SECRET_NEEDED = Message(
    "US2162",
    "several nodes need a shared secret: write a long random text into a file that only you can read, and pass it on every node with "
    "--token-file (or in UNDERSTUDY_TOKEN)",
    cause="Agents and users of a job on several nodes authenticate to the orchestrator with a secret. A job on one node generates its own, "
    "and the nodes of one Slurm job share one automatically.",
    remedy="Generate one, for example with `openssl rand -hex 32`, and give the same to every node.",
)

TLS_FOLDER_AND_KEY = Message(
    "US2163",
    "--tls {path} is a folder with its own key, tls.key: leave out --tls-key",
    cause="--tls-key was given together with a folder, which contains its own key.",
    remedy="Leave out --tls-key, or give the files themselves with --tls-cert and --tls-key.",
)

TLS_FOLDER_INCOMPLETE = Message(
    "US2164",
    "--tls {path} has no tls.crt and tls.key, which node {node_rank} needs (understudy certs server)",
    cause="This node runs an orchestrator, and the folder does not contain a server certificate.",
    remedy="Create one with `understudy certs server`, or give the folder that has it.",
)

TLS_FILE_MISSING = Message(
    "US2165",
    "{option}: there is no file {path}",
    cause="The path does not lead to a file.",
    remedy="Correct the path.",
)

KEY_WITHOUT_CERTIFICATE = Message(
    "US2166",
    "--tls-key needs --tls-cert",
    cause="A private key was given, and not the certificate that it belongs to.",
    remedy="Give both.",
)

CERTIFICATE_WITHOUT_KEY = Message(
    "US2167",
    "--tls-cert on node {node_rank} needs --tls-key",
    cause="This node runs an orchestrator, which cannot serve with a certificate without its key. Other nodes need only the certificate.",
    remedy="Give the key with --tls-key on this node.",
)

TLS_UNUSABLE = Message(
    "US2168",
    "--tls-cert, --tls-key: {reason}",
    cause="The files are not a certificate and key in PEM form, do not match, or cannot be read.",
    remedy="Check both files, for example with `openssl x509 -in FILE -text`.",
)

SCHEDULER_ABSENT = Message(
    "US2170",
    "--scheduler {scheduler}: this command was not started in a job of that scheduler (with Slurm: by srun)",
    cause="The environment does not contain the variables that the scheduler sets for the processes of a job.",
    remedy="Start the command inside the job, in Slurm with srun, or leave out --scheduler.",
)

FLOATING_WITHOUT_SCHEDULER = Message(
    "US2171",
    "--floating-spares: floating spares are requested from a scheduler, but this command does not run in a scheduler's job (Slurm: by "
    "srun)",
    cause="Floating spares are nodes that the scheduler assigns on request. There is no scheduler here.",
    remedy="Start the command inside a job of the scheduler, or use --spares or --spare-nodes.",
)

NO_NODE_FOR_RANKS = Message(
    "US2172",
    "--spare-nodes {spare_nodes}: {job} has {nodes} node(s), and at least one must have ranks",
    cause="All nodes of the allocation would have spares only.",
    remedy="Ask the scheduler for more nodes, or give fewer --spare-nodes.",
)

NODES_UNLIKE_ALLOCATION = Message(
    "US2173",
    "--nnodes {nnodes} --spare-nodes {spare_nodes}: {job} has {nodes} node(s). Leave out --nnodes: all nodes except the spare ones have "
    "ranks",
    cause="--nnodes and --spare-nodes do not add up to the number of nodes that the scheduler assigned.",
    remedy="Leave out --nnodes, or request that number of nodes from the scheduler.",
)

SECRET_NOT_SHARED = Message(
    "US2174",
    "the job's secret: {reason}",
    cause="The nodes of the allocation could not share a secret: the first node could not write it, or it did not reach the others.",
    remedy="Fix the cause that the message gives, or give all nodes your own secret with --token-file.",
)

ALLOCATION = Message(
    "US2175",
    "{job}: {nodes}{spares}{orchestrators}",
    cause="`understudy run` was started in a job of a scheduler, and read from it which nodes there are and where orchestrators run.",
)

POD_VARIABLE_REFUSED = Message(
    "US2180",
    "the value of {variable} is not one that this version of Understudy writes: {reason}",
    cause="The controller wrote the variable for the pod, and the package in the image reads it. They have different versions, or "
    "something else has set the variable.",
    remedy="Install the same version of Understudy in the image and in the controller.",
)

POD_OPTIONS_REFUSED = Message(
    "US2181",
    "{options}: in a pod of a job on Kubernetes, the UnderstudyJob sets this; leave it out here",
    cause="The command in the pod has options that the job's resource also sets, and the two might contradict each other.",
    remedy="Remove the options from the command, and set the fields of the UnderstudyJob.",
)

POD_ENDING = Message(
    "US2182",
    "this pod is about to end: its ranks leave it first",
    cause="Kubernetes is ending the pod. Its ranks move to spares within the pod's grace period.",
)

OWNER_OVER = Message(
    "US2183",
    "Slurm job {job}, for which this node was assigned, is over",
    cause="This node was assigned as a floating spare of a job that has ended, so it ends too.",
)

STARTED = Message(
    "US2190",
    "{ranks}, {spares}; run directory {folder}",
    cause="The job is starting. Its journal and the workers' output are in the run directory.",
)

PROCESSES_REMAIN = Message(
    "US2201",
    "processes {pids} do not end after SIGKILL: they are waiting inside the kernel",
    cause="The processes received SIGKILL and are in an uninterruptible wait, usually for a device or a network file system that does not "
    "respond.",
    remedy="Check their state with `ps`, and the kernel log. If they do not end, restart the node.",
)

NOT_IN_TIME = Message(
    "US2202",
    "not everything ended in time: killing the remaining processes",
    cause="The agent or the orchestrator did not end within the grace period after the job was requested to end.",
    remedy="Raise --shutdown-timeout if an exit handler or the saving of a snapshot was cut off.",
)

NODE_RELEASED = Message(
    "US2203",
    "node {node} is no longer part of the job",
    cause="The node was drained or returned, so its part of the job ends.",
)

STOPPING = Message(
    "US2204",
    "{signal}: stopping (send it again to stop immediately)",
    cause="The command received this signal, which ends the job gracefully. A second one ends it without waiting.",
)

SIGNAL_RECEIVED = Message(
    "US2205",
    "{signal} received",
    cause="The job was ended by a signal to `understudy run`.",
)

SIGNAL_FORWARDED = Message(
    "US2206",
    "{signal} is forwarded to the script",
    cause="The command received this signal, and forwards it to the workers, as torchrun does.",
)

ORCHESTRATOR_UNSTARTED = Message(
    "US2207",
    "the orchestrator could not start ({how}); see its output above",
    cause="The orchestrator's process ended before it served requests. It has printed the reason.",
    remedy="Read the output above, correct what it names and start again.",
)

ORCHESTRATOR_COULD_NOT_START = Message(
    "US2208",
    "the orchestrator could not start",
    cause="The job was ended because its orchestrator ended before it served requests.",
    remedy="Read the orchestrator's output above.",
)

ORCHESTRATOR_STAYS_DOWN = Message(
    "US2209",
    "it is not restarted on this node; the job continues with the orchestrators of other nodes",
    cause="The orchestrator of this node ended too often in a short time. From now on the others decide without it.",
    remedy="Find out from the output above why it ends. The job survives the loss of fewer orchestrators now.",
)

JOB_STOPS = Message(
    "US2210",
    "stopping the job",
    cause="The job's only orchestrator ended too often in a short time, and is not restarted.",
    remedy="Find out from the output above why it ends.",
)

ORCHESTRATOR_KEEPS_ENDING = Message(
    "US2211",
    "the orchestrator does not stay running",
    cause="The job was ended because its only orchestrator ended too often in a short time.",
    remedy="Find out why it ends: check its output, the memory of the host, and what kills it.",
)

ORCHESTRATOR_RESTARTED = Message(
    "US2212",
    "the orchestrator ended ({how}); training continues, restarting it",
    cause="The orchestrator's process was killed or failed. The workers do not need it to train, and the next one reads the journal.",
    remedy="Find out what kills it if it happens again: often it is the kernel's OOM killer.",
)

ENDED_TOO_OFTEN = Message(
    "US2213",
    "the {process} ended {times} (last: {how})",
    cause="The process was restarted each time it was killed, and is now given up.",
    remedy="Find out what kills it: often it is the kernel's OOM killer.",
)

AGENT_RESTARTED = Message(
    "US2214",
    "the agent of {node} ended ({how}); training continues, restarting it",
    cause="The agent's process was killed. The workers continue, and the next agent takes control of them.",
    remedy="Find out what kills it if it happens again: often it is the kernel's OOM killer.",
)

AGENT_LOST = Message(
    "US2215",
    "the agent of {node} ended ({how}), and the job cannot continue without it. The output of its workers is in {path}",
    cause="The agent failed, or was killed too often to be restarted, and with it this node's part of the job.",
    remedy="Read the agent's output above, and the workers' output in the folder.",
)

AGENT_ENDED = Message(
    "US2216",
    "the agent of {node} ended ({how})",
    cause="The job was ended because the agent of its node ended.",
    remedy="Read the agent's output above.",
)

ORCHESTRATOR_UNUSABLE = Message(
    "US2217",
    "the orchestrator cannot lead the job ({how}; see its output above). Training continues without it, but a rank that is lost is not "
    "replaced, and `status` and `report` show nothing new. The orchestrator is restarted from time to time until it can lead",
    cause="Usually the journal in the run directory is damaged. Workers do not need the orchestrator to train.",
    remedy="Restore the journal (`understudy journal restore`), or let the job finish.",
)

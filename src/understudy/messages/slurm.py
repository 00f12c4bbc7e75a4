"""Slurm: its commands, the job's step and secret, nodes as Slurm has them, and batch scripts."""

from __future__ import annotations

from understudy.messages.base import Message

# Its commands.
NO_COMMAND = Message(
    "US6300",
    "there is no {command} on this node",
    cause="A command of Slurm is not in PATH.",
    remedy="Install Slurm's client commands on this node, or add them to PATH.",
)
COMMAND_SILENT = Message(
    "US6301",
    "{command} has not answered within {seconds:g} s",
    cause="Slurm's controller does not answer, or is overloaded.",
    remedy="Try the command by hand. What was asked for is asked for again.",
)
COMMAND_NOT_STARTED = Message(
    "US6302",
    "{command}: {reason}",
    cause="The system refused to start the command.",
    remedy="The reason is the system's own.",
)
COMMAND_REFUSED = Message(
    "US6303",
    "{command}: {answer}",
    cause="The command ended with an error. What it printed is quoted.",
    remedy="Try the command by hand. Some changes (such as draining a node) are for administrators of Slurm only.",
)

# The job's step.
SEVERAL_TASKS = Message(
    "US6320",
    "this step of Slurm job {job} has {tasks} tasks on {nodes} node(s), and understudy run is to be started once on each: there "
    "it starts the ranks itself, srun --ntasks-per-node=1 --nodes={nodes} ... understudy run --nproc-per-node N",
    cause="srun started understudy run several times on a node, once for each task.",
    remedy="Give srun --ntasks-per-node=1, and understudy run the number of ranks on a node (--nproc-per-node).",
)
WITHOUT_SRUN = Message(
    "US6321",
    "Slurm job {job} has {nodes} nodes, and without srun only this one trains: "
    "srun --no-kill --kill-on-bad-exit=0 --wait=0 understudy run ... (see understudy slurm script)",
    cause="understudy run was started in a job of several nodes without srun, so the other nodes know nothing of it.",
    remedy="Start it with srun as shown. `understudy slurm script` writes a whole batch script. If only one node is to train, "
    "nothing is to be done.",
)

# The job's secret on its way to the other nodes.
NO_SECRET = Message(
    "US6330",
    "the first node has not sent the job's secret within {seconds:g} s (its own messages say why; --token-file goes without)",
    cause="The first node of the step makes a secret and sends it to the others by sbcast, and it did not come.",
    remedy="Look at the output of the first node. With --token-file on a shared file system no secret is sent.",
)
SECRET_UNREADABLE = Message(
    "US6331",
    "{path}, in which the job's secret comes, cannot be read: {reason}",
    cause="The file that sbcast makes on this node cannot be opened.",
    remedy="Look at the file and at /tmp. With --token-file no secret is sent.",
)
SECRET_OF_OTHERS = Message(
    "US6332",
    "somebody else has made {path}, in which the job's secret comes: give one with --token-file",
    cause="There is a file of this name that belongs to another user, or that others may read. It is not believed.",
    remedy="Find out who made it. Give the secret with --token-file.",
)

# Nodes.
NODE_STATE = Message(
    "US6340",
    "{state}{reason}{user}",
    cause="Slurm has the node in this state, for the reason that is quoted, said by the user in brackets.",
    remedy="Ranks leave a node that Slurm drains or takes for failing. If that is not wanted, resume the node in Slurm.",
)
NODE_TAKEN = Message(
    "US6341",
    "Slurm has taken it from the job ({state})",
    cause="The node is not among the job's nodes any more: Slurm took it for down, or somebody took it out of the job.",
    remedy="The ranks there go to spares. `sinfo -R` shows why Slurm took the node.",
)

# Nodes that are claimed.
LESS_THAN_THE_JOB = Message(
    "US6350",
    "node {node} was given with less than every node of the job has: {missing}",
    cause="Slurm has given a node for a floating spare, and a rank would have less there than on the job's own nodes. None goes there, "
    "and the node is given back.",
    remedy="A plugin of the site may have changed what was asked for: ask its administrators. What --floating-option sets itself is not "
    "compared. The next node is asked for later and later, up to 5 minutes.",
)
NOT_COMPARED = Message(
    "US6351",
    "what was given on node {node} cannot be compared with what the job has: {reason}",
    cause="Slurm's commands do not work on the node that was given for a floating spare. No rank goes there; the node is given back.",
    remedy="Look at the reason, and try `scontrol show job` on that node.",
)
NOTHING_LISTED = Message(
    "US6352",
    "Slurm does not say what job {job} has on its nodes",
    cause="`scontrol show job --details` lists no node of the job, so no node like those can be asked for.",
    remedy="Try that command by hand. Slurm before 20.02 prints it in another form.",
)
CLAIMS_OF_PARTS = Message(
    "US6353",
    "--floating-spares: Slurm job {job} has {parts} components, whose nodes may differ, and a spare node would have to be like all of them",
    cause="The job is heterogeneous (sbatch with ':' between the options of its components).",
    remedy="Leave out --floating-spares and give the job spare nodes of its own (--spare-nodes), or submit a job of one component.",
)
CLAIMS_IN_CONTAINER = Message(
    "US6354",
    "--floating-spares: this step runs in the container {container}, and a spare node would not: give --floating-option=--container=BUNDLE",
    cause="srun or sbatch was given --container. A job for a spare node gets that only if it is among its own options.",
    remedy="Give the bundle as --floating-option=--container=BUNDLE, by its path on the nodes, or leave out --floating-spares.",
)

# Batch scripts.
NO_PROGRAM = Message(
    "US6360",
    "give the training script, and its arguments behind it",
    cause="understudy slurm script was called without a training script.",
    remedy="Give the script at the end of the command.",
)
TOO_FEW = Message(
    "US6361",
    "at least one node and one rank are needed, and no less than no spare nodes",
    cause="--nodes or --nproc-per-node is below 1, or --spare-nodes is negative.",
    remedy="Give other numbers.",
)
NOT_IN_A_SCRIPT = Message(
    "US6362",
    "{value!r}: a line of a batch script cannot have this in it",
    cause="An option or argument has a line break or a zero byte in it.",
    remedy="Remove it.",
)

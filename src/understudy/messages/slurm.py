"""Slurm: its commands, the job's step and secret, the states of nodes, and batch scripts."""

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
    cause="Slurm's controller does not respond, or is overloaded.",
    remedy="Run the command by hand. The request is retried.",
)
COMMAND_NOT_STARTED = Message(
    "US6302",
    "{command}: {reason}",
    cause="The system refused to start the command.",
    remedy="Fix the cause that the operating system reported.",
)
COMMAND_REFUSED = Message(
    "US6303",
    "{command}: {answer}",
    cause="The command ended with an error. Its output is quoted.",
    remedy="Run the command by hand. Some changes (such as draining a node) require an administrator of Slurm.",
)

# The job's step.
SEVERAL_TASKS = Message(
    "US6320",
    "this step of Slurm job {job} has {tasks} tasks on {nodes} node(s). Start understudy run once on each node; it starts the ranks "
    "there itself: srun --ntasks-per-node=1 --nodes={nodes} ... understudy run --nproc-per-node N",
    cause="srun started understudy run several times on a node, once for each task.",
    remedy="Pass srun --ntasks-per-node=1, and understudy run the number of ranks on a node (--nproc-per-node).",
)
WITHOUT_SRUN = Message(
    "US6321",
    "Slurm job {job} has {nodes} nodes, and without srun only this one trains. Use srun --no-kill --kill-on-bad-exit=0 --wait=0 "
    "understudy run ... (see understudy slurm script)",
    cause="understudy run was started in a job of several nodes without srun, so the other nodes do not take part.",
    remedy="Start it with srun as shown. `understudy slurm script` writes a complete batch script. If only one node is to train, ignore "
    "this.",
)

# The job's secret on its way to the other nodes.
NO_SECRET = Message(
    "US6330",
    "the first node did not send the job's secret within {seconds:g} s (see its messages for the reason; with --token-file no secret is "
    "sent)",
    cause="The first node of the step generates a secret and sends it to the others by sbcast. The secret did not arrive on this node.",
    remedy="Read the output of the first node. With --token-file on a shared file system no secret is sent.",
)
SECRET_UNREADABLE = Message(
    "US6331",
    "{path}, which contains the job's secret, cannot be read: {reason}",
    cause="The file that sbcast creates on this node cannot be opened.",
    remedy="Check the file and /tmp. With --token-file no secret is sent.",
)
SECRET_OF_OTHERS = Message(
    "US6332",
    "another user created {path}, which should contain the job's secret: pass the secret with --token-file",
    cause="There is a file of this name that belongs to another user, or that others may read. It is not trusted.",
    remedy="Find out which user created it. Pass the secret with --token-file.",
)

# Nodes.
NODE_STATE = Message(
    "US6340",
    "{state}{reason}{user}",
    cause="Slurm lists the node with this state and reason; the name in brackets is the user who set it.",
    remedy="Resume the node in Slurm if its ranks should stay: ranks leave a node that Slurm drains or considers failing.",
)
NODE_TAKEN = Message(
    "US6341",
    "Slurm has removed it from the job ({state})",
    cause="The node is no longer among the job's nodes: Slurm considers it down, or it was removed from the job.",
    remedy="Run `sinfo -R` to see why Slurm removed the node. The ranks there go to spares.",
)

# Claimed nodes.
LESS_THAN_THE_JOB = Message(
    "US6350",
    "node {node} has less than the other nodes of the job: {missing}",
    cause="Slurm assigned this node as a floating spare, but a rank would have fewer resources there than on the job's own nodes. No "
    "rank goes there, and the node is returned.",
    remedy="A plugin of the site may have changed the request: ask its administrators. Resources that --floating-option sets are not "
    "compared. The next node is requested after growing pauses of up to 5 minutes.",
)
NOT_COMPARED = Message(
    "US6351",
    "the resources of node {node} cannot be compared with those of the job: {reason}",
    cause="Slurm's commands do not work on the node that was assigned as a floating spare. No rank goes there, and the node is returned.",
    remedy="Fix the cause that the message gives, and try `scontrol show job` on that node.",
)
NOTHING_LISTED = Message(
    "US6352",
    "Slurm does not list the resources of job {job} on its nodes",
    cause="`scontrol show job --details` lists no node of the job, so a node with the same resources cannot be requested.",
    remedy="Run that command by hand. Slurm before 20.02 prints it in another form.",
)
CLAIMS_OF_PARTS = Message(
    "US6353",
    "--floating-spares: Slurm job {job} has {parts} components, whose nodes may differ, and a spare node would have to be like all of them",
    cause="The job is heterogeneous (sbatch with ':' between the options of its components).",
    remedy="Leave out --floating-spares and start the job with spare nodes (--spare-nodes), or submit a job of one component.",
)
CLAIMS_IN_CONTAINER = Message(
    "US6354",
    "--floating-spares: this step runs in the container {container}, but a spare node would run without it: give "
    "--floating-option=--container=BUNDLE",
    cause="srun or sbatch was given --container. A spare node is requested by a separate Slurm job, which does not inherit this option.",
    remedy="Give the bundle as --floating-option=--container=BUNDLE, by its path on the nodes, or leave out --floating-spares.",
)

# Batch scripts.
NO_PROGRAM = Message(
    "US6360",
    "give the training script, and its arguments after it",
    cause="understudy slurm script was called without a training script.",
    remedy="Give the script at the end of the command.",
)
TOO_FEW = Message(
    "US6361",
    "at least one node and one rank are needed, and the number of spare nodes must not be negative",
    cause="--nodes or --nproc-per-node is below 1, or --spare-nodes is negative.",
    remedy="Correct the numbers.",
)
NOT_IN_A_SCRIPT = Message(
    "US6362",
    "{value!r}: a line of a batch script cannot contain this",
    cause="An option or argument contains a line break or a zero byte.",
    remedy="Remove it.",
)

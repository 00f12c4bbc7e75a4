"""Messages about the options of `understudy run`: why a command line is refused, and which options have no effect."""

from __future__ import annotations

from understudy.messages.base import Message

JSON_WITHOUT_CHECK = Message(
    "US2100",
    "--json is for the page of --check; of a job that runs, understudy status --json and understudy report --json tell",
    cause="`understudy run` was given --json without --check. A job itself prints no JSON.",
    remedy="Leave --json out, and ask a running job with `understudy status --json` or `understudy report --json`.",
)

NO_PYTHON_REFUSED = Message(
    "US2101",
    "--no-python is refused: a worker is a Python process that has imported torch before it gets its rank, and keeps its state for its "
    "replacement. Start programs that are not Python with torchrun",
    cause="torchrun's --no-python starts any program as a worker. Understudy needs a Python process, in which it can hold and transfer "
    "the training state.",
    remedy="Give a Python script or, with -m, a module. Start other programs with torchrun.",
)

VIRTUAL_LOCAL_RANK_REFUSED = Message(
    "US2102",
    "--virtual-local-rank is refused: it sets CUDA_VISIBLE_DEVICES before a process starts, and a spare starts before it knows its rank. "
    "Use LOCAL_RANK in the script",
    cause="The option hides all GPUs but one before the process starts. A spare is started, and sees its GPUs, before it gets a rank.",
    remedy="Leave the option out, and choose the device in the script with LOCAL_RANK.",
)

NUMA_BINDING_REFUSED = Message(
    "US2103",
    "--numa-binding is refused: a spare starts before it knows its rank, and so its GPU. Bind in the script, where LOCAL_RANK is known",
    cause="The option binds a process to the NUMA node of its GPU when it starts. A spare has no rank then, and so no GPU of its own.",
    remedy="Leave the option out, and bind in the script after LOCAL_RANK is known.",
)

LOGS_SPECS_REFUSED = Message(
    "US2104",
    "--logs-specs is refused: plug-ins for torchrun's launcher have no place here; see --log-dir and --tee",
    cause="The option names a plug-in of torchrun's launcher, which `understudy run` does not use.",
    remedy="Leave it out. --log-dir, --redirects and --tee write the workers' output into files.",
)

DUPLICATE_FILTERS_REFUSED = Message(
    "US2105",
    "--duplicate-stdout-filters and --duplicate-stderr-filters are refused: every worker's whole output is kept in the run directory "
    "(workers/*.log); filter there",
    cause="The options write filtered copies of the workers' output. `understudy run` keeps all of it instead.",
    remedy="Leave them out, and search workers/*.log in the run directory.",
)

RENDEZVOUS_REFUSED = Message(
    "US2106",
    "--rdzv-backend {backend} is refused: the orchestrator on node 0 is the rendezvous; use static or c10d and give its address with "
    "--rdzv-endpoint or --master-addr",
    cause="The option asks for a rendezvous service such as etcd. The workers of an Understudy job meet at its orchestrator.",
    remedy="Leave --rdzv-backend out, or give static or c10d.",
)

NODES_FORM = Message(
    "US2110",
    "--nnodes {nnodes}: give the number of nodes, such as --nnodes 2",
    cause="The value is no number of at least 1, nor a range of two numbers.",
    remedy="Give the number of nodes that hold ranks.",
)

NODES_RANGE = Message(
    "US2111",
    "--nnodes {nnodes} is refused: a job has a fixed number of ranks, and a lost one is replaced instead of left out. Give one number "
    "(--nnodes {most}) and spares (--spares 1)",
    cause="torchrun's MIN:MAX lets a job continue with fewer nodes. An Understudy job keeps its size, because a spare takes over a lost "
    "rank.",
    remedy="Give one number of nodes, and spares with --spares, --spare-nodes or --floating-spares.",
)

NEGATIVE = Message(
    "US2112",
    "{option} must not be negative",
    cause="The option counts something and was given a number below 0.",
    remedy="Give 0 or more.",
)

SPARE_NODES_SUBMITTED = Message(
    "US2113",
    "--spare-nodes is for a job that brings its nodes: an orchestrator puts the spares (--spares) on nodes that it has",
    cause="--spare-nodes was given together with --orchestrator. A submitted job runs on the nodes of the service.",
    remedy="Give the number of spares with --spares.",
)

STANDALONE_NODES = Message(
    "US2114",
    "--standalone means one node; it does not go together with --nnodes {nodes}",
    cause="--standalone starts everything on this machine, and the other options ask for several nodes (--spare-nodes included).",
    remedy="Leave out --standalone, or the options for further nodes.",
)

NODE_RANK_NEEDED = Message(
    "US2115",
    "{nodes} needs --node-rank (0 to {last}) on every node; node 0 runs the orchestrator",
    cause="The job has several nodes, and nothing says which of them this one is. In a Slurm step or a JobSet that is found out.",
    remedy="Give each node its own number with --node-rank, from 0 on, or start the command with srun.",
)

NODE_RANK_RANGE = Message(
    "US2116",
    "--node-rank {node_rank} is not one of 0 to {last} ({nodes})",
    cause="The number is not below the number of nodes. Nodes for spares count, and have the last numbers.",
    remedy="Number the nodes from 0 on, or correct --nnodes and --spare-nodes.",
)

MASTER_NEEDED = Message(
    "US2117",
    "{nodes} needs the address of node 0: --master-addr HOST (or --rdzv-endpoint HOST:PORT)",
    cause="The job has several nodes, and this one does not know where the orchestrator on node 0 listens.",
    remedy="Give the same address on every node, one by which all of them reach node 0.",
)

ENDPOINT_FORM = Message(
    "US2118",
    "--rdzv-endpoint {endpoint}: give HOST:PORT",
    cause="What follows the last colon is no port number.",
    remedy="Give HOST:PORT, an IPv6 address in brackets: [fe80::1]:29500.",
)

ENDPOINTS_FORM = Message(
    "US2119",
    "--rdzv-endpoint {endpoints}: give HOST:PORT for each, with commas between them",
    cause="One of the addresses has no host, or the port 0.",
    remedy="Give the address of each orchestrator as HOST:PORT, and no comma at the end.",
)

ENDPOINT_TWICE = Message(
    "US2120",
    "--rdzv-endpoint {endpoints} names the same address twice",
    cause="Two of the orchestrators would listen on the same host and port.",
    remedy="Give the addresses of nodes 0, 1, 2, ... in this order, each once.",
)

ENDPOINTS_EVEN = Message(
    "US2121",
    "--rdzv-endpoint names {count} addresses, and a majority of {count} is {majority}: no more hosts may be lost than with {fewer}. Give "
    "one address, three (one of these hosts may be lost) or five (two may)",
    cause="Several orchestrators decide by majority. An even number of them survives no more losses than one fewer.",
    remedy="Give one, three or five addresses.",
)

ENDPOINTS_TOO_MANY = Message(
    "US2122",
    "--rdzv-endpoint names {count} addresses, and there are {nodes} nodes (--nnodes): they are those of nodes 0, 1, 2, ..., each of which "
    "runs an orchestrator",
    cause="There are more addresses than nodes that could run an orchestrator.",
    remedy="Give at most as many addresses as the job has nodes, in the order of the nodes.",
)

NO_WORKERS = Message(
    "US2125",
    "--nproc-per-node {value}: that is {count} workers; at least one is needed",
    cause="The option was given 0, or torch finds no device of the kind that it names on this machine.",
    remedy="Give a number of at least 1, or cpu.",
)

WORKERS_UNKNOWN = Message(
    "US2126",
    "--nproc-per-node {value}: {reason}",
    cause="The value is no number, so torch was asked what it means on this machine, and it failed with this reason.",
    remedy="Give a number, cpu, gpu or auto. If the reason is about torch itself, run `understudy doctor`.",
)

JOB_NAME_SLASH = Message(
    "US2130",
    "--rdzv-id {job}: a job's name has no slash here, because it is part of an address",
    cause="The name of a job is a part of the paths of the HTTP API.",
    remedy="Choose a name without a slash.",
)

PREPARE_RANGE = Message(
    "US2131",
    "--prepare {prepare}: so many of the spares are prepared, and there are {spares} (--spares)",
    cause="More spares would be prepared than the job has, or fewer than 0. Without --spares there is one.",
    remedy="Give at most the number of spares, or more spares.",
)

DRILL_FORM = Message(
    "US2132",
    "--drill {value}: the step at which the first drill begins, from 1 on, or off",
    cause="The value is neither a step number of at least 1 nor off.",
    remedy="Give a step, or off for drills only on request.",
)

REQUIRE_DRILL = Message(
    "US2133",
    "--require-drill: there are no drills with --drill off, --spares 0 or --no-replenish",
    cause="A job that is required to pass its drills needs drills that begin by themselves, a spare for them, and a new spare after each "
    "of them.",
    remedy="Leave out --require-drill, or the option that rules drills out.",
)

TIMEOUTS_REFUSED = Message(
    "US2134",
    "--hang-limit, --setup-limit, --shutdown-timeout, --heartbeat, --node-timeout: {reason}",
    cause="The limits of time contradict each other: the reason names them as the core does, and the order that they must have.",
    remedy="Change one of these options so that the order holds, or leave them out.",
)

LABEL_FORM = Message(
    "US2135",
    "--label {label}: give KEY=VALUE",
    cause="The text has no equals sign, or nothing in front of it.",
    remedy="Give for instance --label switch=s3.",
)

DETECTORS_SUBMITTED = Message(
    "US2137",
    "--detectors is for a job that runs here: an orchestrator's nodes have one of their own (understudy agent --detectors)",
    cause="--detectors was given together with --orchestrator. Detectors of a service belong to its nodes, not to a job.",
    remedy="Leave the option out, and give the file to `understudy agent` on the nodes.",
)

SCRIPT_NEEDED = Message(
    "US2140",
    "give the script to run (or -m and a module) after the options; see understudy run --help",
    cause="The command line ends without a script.",
    remedy="Give the script and its arguments last.",
)

SCRIPT_MISSING = Message(
    "US2142",
    "there is no script {script} in {folder}",
    cause="The path of the script does not lead to a file. Options behind it belong to the script, and an option of ours that is misspelt "
    "may have been taken for it.",
    remedy="Correct the path, or give -m for a module.",
)

STREAMS_FORM = Message(
    "US2143",
    "{option} {value}: give 0 to 3, or LOCAL_RANK:0..3 separated by commas",
    cause="The value has not the form that torchrun defines for --redirects and --tee: 0 none, 1 stdout, 2 stderr, 3 both.",
    remedy="Give one number for all local ranks, or for some of them for instance 0:1,2:3.",
)

LOCAL_RANKS_FORM = Message(
    "US2144",
    "--local-ranks-filter {value}: give local ranks separated by commas, such as 0,1",
    cause="A part of the value is no number.",
    remedy="Give numbers of local ranks, with commas between them.",
)

SIGNAL_UNKNOWN = Message(
    "US2145",
    "--signals-to-handle: {name} is not a signal",
    cause="The name is not one of this system's signals.",
    remedy="Give names such as SIGTERM,SIGINT, with commas between them.",
)

RENDEZVOUS_CONF_IGNORED = Message(
    "US2150",
    "--rdzv-conf has no effect: the orchestrator takes the place of the rendezvous and has no such settings",
    cause="The option configures torchrun's rendezvous, which is not used.",
)

EVENT_LOG_IGNORED = Message(
    "US2151",
    "--event-log-handler has no effect: every event is in the run directory's journal (understudy report)",
    cause="The option chooses where torchrun writes its events. Understudy writes its own into the journal.",
)

ENDPOINT_HOST_IGNORED = Message(
    "US2152",
    "with one node the orchestrator listens on this machine only; of --rdzv-endpoint only the port counts",
    cause="--rdzv-endpoint was given for a job of one node, to whose orchestrator no other node connects.",
)

POLICY_UNUSABLE = Message(
    "US2153",
    "--policy {path}: {reason}",
    cause="The file cannot be read, or is no policy, for the reason that is named.",
    remedy="Correct it. `understudy policy check` says the same without starting a job.",
)

"""Messages about the options of `understudy run`: why a command line is refused, and which options have no effect."""

from __future__ import annotations

from understudy.messages.base import Message

JSON_WITHOUT_CHECK = Message(
    "US2100",
    "--json is for the report of --check; for a running job use understudy status --json and understudy report --json",
    cause="`understudy run` was given --json without --check. A job itself prints no JSON.",
    remedy="Leave out --json, and query a running job with `understudy status --json` or `understudy report --json`.",
)

NO_PYTHON_REFUSED = Message(
    "US2101",
    "--no-python is refused: a worker is a Python process that has imported torch before it gets its rank, and keeps its state for a "
    "newcomer. Start programs that are not Python with torchrun",
    cause="torchrun's --no-python starts any program as a worker. Understudy needs a Python process, in which it can hold and transfer "
    "the training state.",
    remedy="Give a Python script or, with -m, a module. Start other programs with torchrun.",
)

VIRTUAL_LOCAL_RANK_REFUSED = Message(
    "US2102",
    "--virtual-local-rank is refused: it sets CUDA_VISIBLE_DEVICES before a process starts, and a spare starts before it knows its rank. "
    "Use LOCAL_RANK in the script",
    cause="The option hides all GPUs but one before the process starts. A spare is started, and sees its GPUs, before it gets a rank.",
    remedy="Leave out the option, and choose the device in the script with LOCAL_RANK.",
)

NUMA_BINDING_REFUSED = Message(
    "US2103",
    "--numa-binding is refused: a spare starts before it knows its rank, and so its GPU. Bind in the script, where LOCAL_RANK is known",
    cause="The option binds a process to the NUMA node of its GPU when it starts. A spare has no rank then, and so no GPU of its own.",
    remedy="Leave out the option, and bind in the script after LOCAL_RANK is known.",
)

LOGS_SPECS_REFUSED = Message(
    "US2104",
    "--logs-specs is refused: plug-ins for torchrun's launcher are not supported; see --log-dir and --tee",
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
    cause="The option requests a rendezvous service such as etcd. The workers of an Understudy job use its orchestrator instead.",
    remedy="Leave out --rdzv-backend, or use static or c10d.",
)

NODES_FORM = Message(
    "US2110",
    "--nnodes {nnodes}: give the number of nodes, such as --nnodes 2",
    cause="The value is not a number of at least 1, nor a range of two numbers.",
    remedy="Give the number of nodes that hold ranks.",
)

NODES_RANGE = Message(
    "US2111",
    "--nnodes {nnodes} is refused: a job has a fixed number of ranks, and a lost one is replaced instead of dropped. Give one number "
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
    "--spare-nodes is for a job with its own nodes: an orchestrator places the spares (--spares) on its nodes",
    cause="--spare-nodes was given together with --orchestrator. A submitted job runs on the nodes of the service.",
    remedy="Give the number of spares with --spares.",
)

STANDALONE_NODES = Message(
    "US2114",
    "--standalone means one node; it cannot be combined with --nnodes {nodes}",
    cause="--standalone starts everything on this machine, and the other options ask for several nodes (--spare-nodes included).",
    remedy="Leave out --standalone, or the options for more nodes.",
)

NODE_RANK_NEEDED = Message(
    "US2115",
    "{nodes} needs --node-rank (0 to {last}) on every node; node 0 runs the orchestrator",
    cause="The job has several nodes, and the number of this one is not given. In a Slurm step or a JobSet it is found automatically.",
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
    remedy="Give the same address on every node, one at which all of them reach node 0.",
)

ENDPOINT_FORM = Message(
    "US2118",
    "--rdzv-endpoint {endpoint}: give HOST:PORT",
    cause="The text after the last colon is not a port number.",
    remedy="Give HOST:PORT, an IPv6 address in brackets: [fe80::1]:29500.",
)

ENDPOINTS_FORM = Message(
    "US2119",
    "--rdzv-endpoint {endpoints}: give HOST:PORT for each, separated by commas",
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
    "--rdzv-endpoint names {count} addresses, and a majority of {count} is {majority}: it tolerates the loss of no more hosts than {fewer} "
    "addresses do. Give one address, three (tolerates the loss of one host) or five (of two)",
    cause="Several orchestrators decide by majority. With an even number, the job survives no more losses than with one fewer.",
    remedy="Give one, three or five addresses.",
)

ENDPOINTS_TOO_MANY = Message(
    "US2122",
    "--rdzv-endpoint names {count} addresses, and there are {nodes} nodes (--nnodes): the addresses are those of nodes 0, 1, 2, ..., each "
    "of which runs an orchestrator",
    cause="There are more addresses than nodes that could run an orchestrator.",
    remedy="Give no more addresses than the job has nodes, in the order of the nodes.",
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
    cause="The value is not a number, so torch was queried for its meaning on this machine, and failed with this reason.",
    remedy="Give a number, cpu, gpu or auto. If the reason is about torch itself, run `understudy doctor`.",
)

JOB_NAME_SLASH = Message(
    "US2130",
    "--rdzv-id {job}: the name of a job must not contain a slash, because it is part of an address",
    cause="The name of a job is a part of the paths of the HTTP API.",
    remedy="Choose a name without a slash.",
)

PREPARE_RANGE = Message(
    "US2131",
    "--prepare {prepare}: give 0 to {spares}, the number of spares (--spares)",
    cause="More spares would be prepared than the job has, or fewer than 0. The default of --spares is one.",
    remedy="Give at most the number of spares, or more spares.",
)

DRILL_FORM = Message(
    "US2132",
    "--drill {value}: give the step at which the first drill begins, from 1 on, or off",
    cause="The value is neither a step number of at least 1 nor off.",
    remedy="Give a step, or off for drills only on request.",
)

REQUIRE_DRILL = Message(
    "US2133",
    "--require-drill: there are no drills with --drill off, --spares 0 or --no-replenish",
    cause="A job with --require-drill needs drills that begin automatically, a spare for them, and a new spare after each of them.",
    remedy="Leave out --require-drill, or the option that disables drills.",
)

TIMEOUTS_REFUSED = Message(
    "US2134",
    "--hang-limit, --setup-limit, --shutdown-timeout, --heartbeat, --node-timeout: {reason}",
    cause="The time limits contradict each other: the reason gives their internal names, as in docs/reference/json.md, and "
    "the order that they must have.",
    remedy="Change one of these options so that the order holds, or leave them out.",
)

LABEL_FORM = Message(
    "US2135",
    "--label {label}: give KEY=VALUE",
    cause="The text has no equals sign, or nothing before it.",
    remedy="Give for example --label switch=s3.",
)

DETECTORS_SUBMITTED = Message(
    "US2137",
    "--detectors is for a job that runs here: the nodes of an orchestrator have their own (understudy agent --detectors)",
    cause="--detectors was given together with --orchestrator. Detectors of a service belong to its nodes, not to a job.",
    remedy="Leave out the option, and pass the file to `understudy agent` on the nodes.",
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
    cause="The path of the script does not lead to a file. Options after it belong to the script, and a misspelt option may have been "
    "parsed as the script.",
    remedy="Correct the path, or use -m for a module.",
)

STREAMS_FORM = Message(
    "US2143",
    "{option} {value}: give 0 to 3, or LOCAL_RANK:0..3 separated by commas",
    cause="The value does not have the form that torchrun defines for --redirects and --tee: 0 none, 1 stdout, 2 stderr, 3 both.",
    remedy="Give one number for all local ranks, or LOCAL_RANK:NUMBER for some of them, for example 0:1,2:3.",
)

LOCAL_RANKS_FORM = Message(
    "US2144",
    "--local-ranks-filter {value}: give local ranks separated by commas, such as 0,1",
    cause="A part of the value is not a number.",
    remedy="Give numbers of local ranks, separated by commas.",
)

SIGNAL_UNKNOWN = Message(
    "US2145",
    "--signals-to-handle: {name} is not a signal",
    cause="The name is not one of this system's signals.",
    remedy="Give names such as SIGTERM,SIGINT, separated by commas.",
)

RENDEZVOUS_CONF_IGNORED = Message(
    "US2150",
    "--rdzv-conf has no effect: the orchestrator replaces the rendezvous and has no such settings",
    cause="The option configures torchrun's rendezvous, which is not used.",
)

EVENT_LOG_IGNORED = Message(
    "US2151",
    "--event-log-handler has no effect: every event is in the run directory's journal (understudy report)",
    cause="The option chooses where torchrun writes its events. Understudy writes its own into the journal.",
)

ENDPOINT_HOST_IGNORED = Message(
    "US2152",
    "with one node the orchestrator listens on this machine only; only the port of --rdzv-endpoint is used",
    cause="--rdzv-endpoint was given for a job of one node, and no other node connects to its orchestrator.",
)

POLICY_UNUSABLE = Message(
    "US2153",
    "--policy {path}: {reason}",
    cause="The file cannot be read, or is not a policy, for the reason that is named.",
    remedy="Correct it. `understudy policy check` reports the same without starting a job.",
)

"""The options of `understudy run`, each declared once: name, help, default. `launch` interprets them.

They carry torchrun's names, both spellings, and its environment defaults (PET_NPROC_PER_NODE, ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.kills import PHASES
from understudy.cli.target import TLS
from understudy.common.names import CHAOS_VARIABLE, INTEGRATION_VARIABLE, STRICT_VARIABLE
from understudy.core.model import Timeouts, Unproven

LAUNCH, CHECK, NODES, OUTPUT, OURS, REST = (
    "What to run",
    "Check of the script",
    "Several nodes",
    "Output",
    "Spares and recovery",
    "torchrun's other options",
)


def _option(panel: str, *names: str, help: str, env: str = "", metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, envvar=f"PET_{env}" if env else None, rich_help_panel=panel, metavar=metavar)


class Trainers(StrEnum):
    """Whether trainers of frameworks are protected."""

    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True)
class Flags:
    """The command line as it was typed, in the order of `--help`."""

    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="The script, then its own arguments.")]
    nproc_per_node: Annotated[
        str,
        _option(LAUNCH, "--nproc-per-node", help="Ranks on each node: a number, cpu, gpu or auto.", env="NPROC_PER_NODE"),
    ] = "1"
    module: Annotated[bool, _option(LAUNCH, "-m", "--module", help="SCRIPT is a module, as in python -m.", env="MODULE")] = False
    check: Annotated[
        bool,
        _option(
            CHECK,
            "--check",
            help="Run some steps undisturbed. Run them again with drills, and kill a rank in each of several phases of a step. Compare "
            "both runs bit by bit, print a report and exit. The script saves its files as usual in both runs, so give it a scratch folder. "
            "On one machine only.",
        ),
    ] = False
    check_steps: Annotated[
        int, _option(CHECK, "--check-steps", metavar="N", help="With --check: number of steps before the first kill.")
    ] = 12
    kills: Annotated[
        str,
        _option(
            CHECK,
            "--kills",
            metavar="PHASES",
            help="With --check: phases of a step in which a rank is killed, separated by commas. forward: the step begins. backward: its "
            "backward pass begins. vote: its vote begins. apply: after the vote, before optimizer.step. between: between two steps. The "
            "kills happen in the given order, two steps apart; 8 steps follow the last one. Each kill takes about as long as a spare needs "
            "to become warm.",
        ),
    ] = ",".join(PHASES)
    as_json: Annotated[bool, _option(CHECK, "--json", help="With --check: print the report as JSON, for programs.")] = False
    spares: Annotated[
        int | None,
        _option(
            OURS,
            "--spares",
            help="Warm workers of the job, on all nodes together, that wait to take over a rank. Default: 1; with --spare-nodes: 0.",
        ),
    ] = None
    prepare: Annotated[
        int,
        _option(
            OURS,
            "--prepare",
            help="Number of spares that run the script up to its first step ahead of time. Each is prepared for one rank, and takes it "
            "over sooner. The setup of the script then happens a second time while the rank is running: it uses memory, prints its "
            "output and opens its files again.",
        ),
    ] = 0
    no_replenish: Annotated[bool, _option(OURS, "--no-replenish", help="Do not start a new spare for each one that was used.")] = False
    drill: Annotated[
        str,
        typer.Option(
            "--drill",
            metavar="STEP",
            envvar="UNDERSTUDY_DRILL",
            help="From this step on, drills run by themselves while a spare is warm: first one for each role, then one every minute or "
            "less often, so that ranks wait for drills for at most 0.1 % of the time. In a drill, a spare computes one step of a rank in "
            "parallel with it, and both are compared bit by bit (docs/script/check-and-incidents.md). The setup of the script then happens "
            "a second time while the rank is running. off: "
            "a drill runs only when it is requested by understudy drill.",
            rich_help_panel=OURS,
        ),
    ] = "1"
    drill_bytes: Annotated[
        int | None,
        typer.Option(
            "--drill-bytes",
            min=0,
            envvar="UNDERSTUDY_DRILL_BYTES",
            help="Maximum size of all results of collectives that a drill sends, in bytes. Collectives beyond it are not compared. "
            "Default: 8 GiB.",
            rich_help_panel=OURS,
        ),
    ] = None
    require_drill: Annotated[
        bool,
        _option(
            OURS,
            "--require-drill",
            help="End the job with exit code 3 if a drill finds that it would not survive the loss of a rank, or that the step is not "
            "reproducible.",
        ),
    ] = False
    unproven: Annotated[
        Unproven,
        _option(
            OURS,
            "--unproven",
            help="Action after a recovery whose result is unproven (docs/script/check-and-incidents.md): continue with a warning, or "
            "pause until `understudy resolve` is run.",
        ),
    ] = Unproven.CONTINUE
    policy: Annotated[
        Path | None,
        _option(OURS, "--policy", help="Policy for evidence: a TOML file (understudy policy). Default: the built-in policy."),
    ] = None
    detectors: Annotated[
        Path | None,
        _option(OURS, "--detectors", help="Detectors of this node: a TOML file (understudy detectors)."),
    ] = None
    hang_limit: Annotated[
        float | None,
        _option(
            OURS,
            "--hang-limit",
            help="Seconds without progress in a step after which a rank counts as lost. Default: 20 times the longest step so far, at "
            "least 60.",
        ),
    ] = None
    alone_limit: Annotated[
        float | None,
        _option(
            OURS,
            "--alone-limit",
            help="Seconds after which a rank counts as lost if it works while the others wait for it: between steps, in a section, before "
            "the first step, at the script's end, and in the first two calls of each @job.step function. A message about it is printed "
            "earlier, after --hang-limit. Default: 1800.",
        ),
    ] = None
    setup_limit: Annotated[
        float | None,
        _option(
            OURS,
            "--setup-limit",
            help="Seconds that a newcomer may need from its start until it has its rank's state. Default: 900.",
        ),
    ] = None
    compare_every: Annotated[
        int | None,
        typer.Option(
            "--compare-every",
            min=0,
            envvar="UNDERSTUDY_COMPARE_EVERY",
            help="Steps between two comparisons of replicas during training. 0: replicas that differ are reported only in recoveries, for "
            "scripts whose replicas diverge on purpose. The value of rank 0 applies to all ranks. Default: 100.",
            rich_help_panel=OURS,
        ),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            envvar=STRICT_VARIABLE,
            help="End the job as soon as the script changes something that a newcomer would not have, instead of printing a "
            "notice. The message names what to add to the script.",
            rich_help_panel=OURS,
        ),
    ] = False
    integration: Annotated[
        Trainers,
        typer.Option(
            "--integration",
            envvar=INTEGRATION_VARIABLE,
            help="Protect the Trainer of a framework that makes its own process group (docs/script/frameworks.md): auto does so, none lets "
            "such a script train unprotected, as under torchrun.",
            rich_help_panel=OURS,
        ),
    ] = Trainers.AUTO
    max_restarts: Annotated[
        int | None,
        _option(
            OURS,
            "--max-restarts",
            help="How often the whole job may restart when a rank is lost before the first step (later losses are "
            "recovered within the step). Default: 3; torchrun: 0.",
            env="MAX_RESTARTS",
        ),
    ] = None
    chaos: Annotated[
        bool,
        typer.Option(
            "--chaos",
            envvar=CHAOS_VARIABLE,
            help="For tests: allow understudy chaos to inject faults inside this job's workers.",
            rich_help_panel=OURS,
        ),
    ] = False
    run_dir: Annotated[
        Path | None,
        _option(OUTPUT, "--run-dir", help="Folder for this run. Default: a new one in ./understudy-runs."),
    ] = None
    log_dir: Annotated[
        str | None,
        _option(OUTPUT, "--log-dir", help="Folder for the files of --redirects and --tee, as in torchrun.", env="LOG_DIR"),
    ] = None
    redirects: Annotated[
        str,
        _option(
            OUTPUT,
            "-r",
            "--redirects",
            help="Keep streams off the terminal: 1 stdout, 2 stderr, 3 both, or LOCAL_RANK:N,...",
            env="REDIRECTS",
        ),
    ] = "0"
    tee: Annotated[
        str,
        _option(OUTPUT, "-t", "--tee", help="Also write streams to a file per rank (same form as --redirects).", env="TEE"),
    ] = "0"
    local_ranks_filter: Annotated[
        str,
        _option(OUTPUT, "--local-ranks-filter", help="Show only these local ranks, such as 0,1.", env="LOCAL_RANKS_FILTER"),
    ] = ""
    nnodes: Annotated[
        str,
        _option(NODES, "--nnodes", help="Number of nodes; start `understudy run` on each. It never changes: 1:4 is refused.", env="NNODES"),
    ] = "1:1"
    spare_nodes: Annotated[
        int,
        _option(
            NODES,
            "--spare-nodes",
            help="Number of additional nodes without ranks. Each has --nproc-per-node spares. They have the highest node ranks.",
        ),
    ] = 0
    floating_spares: Annotated[
        int,
        _option(
            NODES,
            "--floating-spares",
            help="Maximum number of nodes requested from the scheduler when a rank needs a spare and no node of the job has one. These "
            "nodes are returned when the job has a spare again.",
        ),
    ] = 0
    floating_option: Annotated[
        list[str] | None,
        _option(
            NODES,
            "--floating-option",
            help="Option of the scheduler for these nodes. Repeatable: --floating-option=--qos=urgent. Default: those of the job.",
        ),
    ] = None
    scheduler: Annotated[
        str,
        typer.Option(
            "--scheduler",
            envvar="UNDERSTUDY_SCHEDULER",
            help="Scheduler of this job: slurm, none, or auto (detected). Nodes, addresses, node rank and secret are taken from it "
            "unless they are given.",
            rich_help_panel=NODES,
        ),
    ] = "auto"
    node_rank: Annotated[
        int | None,
        _option(
            NODES,
            "--node-rank",
            help="This node's number, needed with several nodes. Node 0 runs the orchestrator (with "
            "several orchestrators, each of the first nodes runs one: see --rdzv-endpoint). Under Slurm, srun gives the number, and with "
            "three or more nodes each of the first three runs an orchestrator.",
            env="NODE_RANK",
        ),
    ] = None
    master_addr: Annotated[str | None, _option(NODES, "--master-addr", help="Address of node 0.", env="MASTER_ADDR")] = None
    master_port: Annotated[
        int | None,
        _option(
            NODES,
            "--master-port",
            help="Port of the orchestrator on node 0. It is not the script's MASTER_PORT. Default: 29500.",
            env="MASTER_PORT",
        ),
    ] = None
    local_addr: Annotated[
        str | None,
        _option(NODES, "--local-addr", help="Address at which the other nodes reach this one. Default: detected.", env="LOCAL_ADDR"),
    ] = None
    orchestrator: Annotated[
        str,
        typer.Option(
            "--orchestrator",
            envvar="UNDERSTUDY_ORCHESTRATOR",
            help="Submit the job to the orchestrator at this URL, which runs it on its nodes.",
            rich_help_panel=NODES,
        ),
    ] = ""
    detach: Annotated[
        bool, _option(NODES, "--detach", help="With --orchestrator: do not wait for the job, and do not show its output.")
    ] = False
    failure_domain: Annotated[
        str,
        _option(
            NODES,
            "--failure-domain",
            help="Name for the hardware that fails together with this node, such as its rack or switch. Spares, copies and donors outside "
            "of it are preferred. Default: none.",
        ),
    ] = ""
    label: Annotated[
        list[str] | None,
        _option(
            NODES,
            "--label",
            help="Location of this node, as KEY=VALUE. Repeatable. Keys: nvlink-domain (see --keep-together), switch (a spare with the "
            "same switch is preferred), failure-domain (like the option of this name).",
        ),
    ] = None
    keep_together: Annotated[
        list[str] | None,
        _option(
            NODES,
            "--keep-together",
            metavar="GROUP",
            help="Keep the ranks of this group within one NVLink domain (--label nvlink-domain=...). Repeatable. A group is a dimension of "
            "the script's device mesh, such as tp, or the group_desc of new_group.",
        ),
    ] = None
    heartbeat: Annotated[float, _option(NODES, "--heartbeat", help="Seconds between two heartbeats of a node.")] = Timeouts.heartbeat
    node_timeout: Annotated[
        float, _option(NODES, "--node-timeout", help="Seconds without a heartbeat after which a node counts as lost.")
    ] = Timeouts.node_lost
    token_file: Annotated[
        Path | None,
        _option(
            NODES,
            "--token-file",
            help="File with the job's secret, the same on every node (or UNDERSTUDY_TOKEN). Needed with several nodes unless the "
            "scheduler provides it.",
        ),
    ] = None
    tls_cert: Annotated[Path | None, _option(NODES, "--tls-cert", "--tls", help=TLS)] = None
    tls_key: Annotated[Path | None, _option(NODES, "--tls-key", help="Key of the certificate (PEM), on node 0.")] = None
    standalone: Annotated[bool, _option(REST, "--standalone", help="One node, free port. This is the default.", env="STANDALONE")] = False
    rdzv_endpoint: Annotated[
        str,
        _option(
            NODES,
            "--rdzv-endpoint",
            help="HOST:PORT of the orchestrator, instead of --master-addr. With three or five addresses, separated by commas, nodes 0, 1, "
            "2, ... each run an orchestrator. The job then survives the loss of any one of three, or any two of five, of these hosts. "
            "Under Slurm, a job of three or more nodes uses its first three unless other addresses are given.",
            env="RDZV_ENDPOINT",
        ),
    ] = ""
    rdzv_backend: Annotated[
        str, _option(REST, "--rdzv-backend", help="static or c10d; both mean the orchestrator.", env="RDZV_BACKEND")
    ] = "static"
    rdzv_id: Annotated[str, _option(REST, "--rdzv-id", help="Name of the job.", env="RDZV_ID")] = "none"
    rdzv_conf: Annotated[str, _option(REST, "--rdzv-conf", help="No effect here.", env="RDZV_CONF")] = ""
    role: Annotated[str, _option(REST, "--role", help="ROLE_NAME of the workers.", env="ROLE")] = "default"
    run_path: Annotated[
        bool,
        _option(
            REST,
            "--run-path",
            help="No effect, except that --no-python is then ignored: scripts always run in the worker's own interpreter.",
            env="RUN_PATH",
        ),
    ] = False
    shutdown_timeout: Annotated[
        int | None,
        _option(REST, "--shutdown-timeout", help="Seconds from SIGTERM to SIGKILL. Default: 10; torchrun: 30.", env="SHUTDOWN_TIMEOUT"),
    ] = None
    signals_to_handle: Annotated[
        str,
        _option(REST, "--signals-to-handle", help="Signals that end the job cleanly.", env="SIGNALS_TO_HANDLE"),
    ] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    monitor_interval: Annotated[
        float, _option(REST, "--monitor-interval", help="No effect: losses are detected at once.", env="MONITOR_INTERVAL")
    ] = 0.1
    start_method: Annotated[str, _option(REST, "--start-method", help="No effect on scripts, as in torchrun.", env="START_METHOD")] = (
        "spawn"
    )
    event_log_handler: Annotated[str, _option(REST, "--event-log-handler", help="No effect: see the journal.", env="EVENT_LOG_HANDLER")] = (
        "null"
    )
    no_python: Annotated[bool, _option(REST, "--no-python", help="Refused: see understudy explain US2101.", env="NO_PYTHON")] = False
    virtual_local_rank: Annotated[
        bool, _option(REST, "--virtual-local-rank", help="Refused: see understudy explain US2102.", env="VIRTUAL_LOCAL_RANK")
    ] = False
    numa_binding: Annotated[str | None, _option(REST, "--numa-binding", help="Refused: see understudy explain US2103.")] = None
    logs_specs: Annotated[str | None, _option(REST, "--logs-specs", help="Refused: see understudy explain US2104.")] = None
    duplicate_stdout_filters: Annotated[
        str, _option(REST, "--duplicate-stdout-filters", help="Refused: see understudy explain US2105.", env="DUPLICATE_STDOUT_FILTERS")
    ] = ""
    duplicate_stderr_filters: Annotated[
        str, _option(REST, "--duplicate-stderr-filters", help="Refused: see understudy explain US2105.", env="DUPLICATE_STDERR_FILTERS")
    ] = ""

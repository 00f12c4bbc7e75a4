"""`understudy run`: torchrun's flags and ours, and what is started with them.

The options carry torchrun's names, both spellings, and its environment defaults (PET_NPROC_PER_NODE, ...). What they
mean is in `launch`; how the processes are kept is in `supervisor`.
"""

from __future__ import annotations

import os
import platform
import shlex
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.agent.config import WORKER_COMMAND, AgentConfig
from understudy.cli.launch import Flags, Launch, Usage, launch
from understudy.cli.run_directory import NoRun, RunDirectory
from understudy.cli.say import say
from understudy.cli.supervisor import Supervisor

LAUNCH, NODES, OUTPUT, OURS, REST = (
    "What to run",
    "Several nodes",
    "Output",
    "Spares and recovery",
    "torchrun's other options",
)


def _option(panel: str, *names: str, help: str, env: str = "") -> Any:
    return typer.Option(*names, help=help, envvar=f"PET_{env}" if env else None, rich_help_panel=panel)


def run(
    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]", help="The script, then its own arguments.")],
    nproc_per_node: Annotated[
        str,
        _option(
            LAUNCH, "--nproc-per-node", help="Ranks on each node: a number, cpu, gpu or auto.", env="NPROC_PER_NODE"
        ),
    ] = "1",
    module: Annotated[
        bool, _option(LAUNCH, "-m", "--module", help="SCRIPT is a module, as in python -m.", env="MODULE")
    ] = False,
    spares: Annotated[int, _option(OURS, "--spares", help="Warm workers that wait to take over a rank.")] = 1,
    no_replenish: Annotated[
        bool, _option(OURS, "--no-replenish", help="Do not start a new spare for each one that was used.")
    ] = False,
    hang_limit: Annotated[
        float | None,
        _option(
            OURS,
            "--hang-limit",
            help="A rank without progress for so many seconds is lost. Default: learnt from the job's own steps, "
            "at least 60.",
        ),
    ] = None,
    max_restarts: Annotated[
        int | None,
        _option(
            OURS,
            "--max-restarts",
            help="How often the whole job may start anew when a rank is lost before the first step (later losses are "
            "recovered within the step).",
            env="MAX_RESTARTS",
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        _option(OUTPUT, "--run-dir", help="Folder for this run. Default: a new one in ./understudy-runs."),
    ] = None,
    log_dir: Annotated[
        str | None,
        _option(OUTPUT, "--log-dir", help="Where --redirects and --tee put torchrun's files.", env="LOG_DIR"),
    ] = None,
    redirects: Annotated[
        str,
        _option(
            OUTPUT,
            "-r",
            "--redirects",
            help="Keep streams off the terminal: 1 stdout, 2 stderr, 3 both, or LOCAL_RANK:N,...",
            env="REDIRECTS",
        ),
    ] = "0",
    tee: Annotated[
        str,
        _option(
            OUTPUT, "-t", "--tee", help="Also write streams into a file per rank (form of --redirects).", env="TEE"
        ),
    ] = "0",
    local_ranks_filter: Annotated[
        str,
        _option(OUTPUT, "--local-ranks-filter", help="Show only these local ranks, as 0,1.", env="LOCAL_RANKS_FILTER"),
    ] = "",
    nnodes: Annotated[
        str, _option(NODES, "--nnodes", help="Number of nodes; start `understudy run` on each.", env="NNODES")
    ] = "1:1",
    node_rank: Annotated[
        int | None,
        _option(NODES, "--node-rank", help="This node's number; node 0 runs the orchestrator.", env="NODE_RANK"),
    ] = None,
    master_addr: Annotated[
        str, _option(NODES, "--master-addr", help="Address of node 0.", env="MASTER_ADDR")
    ] = "127.0.0.1",
    master_port: Annotated[
        int | None,
        _option(NODES, "--master-port", help="Port of the orchestrator on node 0. Default: 29500.", env="MASTER_PORT"),
    ] = None,
    local_addr: Annotated[
        str | None,
        _option(
            NODES, "--local-addr", help="Where the other nodes reach this one. Default: found out.", env="LOCAL_ADDR"
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        _option(
            NODES, "--token-file", help="File with the job's secret, the same on every node (or UNDERSTUDY_TOKEN)."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, _option(NODES, "--tls-cert", help="Certificate of the orchestrator (PEM), on every node.")
    ] = None,
    tls_key: Annotated[Path | None, _option(NODES, "--tls-key", help="Its key (PEM), on node 0.")] = None,
    standalone: Annotated[
        bool, _option(REST, "--standalone", help="One node, free port. This is the default.", env="STANDALONE")
    ] = False,
    rdzv_endpoint: Annotated[
        str, _option(REST, "--rdzv-endpoint", help="HOST:PORT, instead of --master-addr.", env="RDZV_ENDPOINT")
    ] = "",
    rdzv_backend: Annotated[
        str, _option(REST, "--rdzv-backend", help="static or c10d; both mean the orchestrator.", env="RDZV_BACKEND")
    ] = "static",
    rdzv_id: Annotated[str, _option(REST, "--rdzv-id", help="Name of the job.", env="RDZV_ID")] = "none",
    rdzv_conf: Annotated[str, _option(REST, "--rdzv-conf", help="No effect here.", env="RDZV_CONF")] = "",
    role: Annotated[str, _option(REST, "--role", help="ROLE_NAME of the workers.", env="ROLE")] = "default",
    run_path: Annotated[
        bool,
        _option(
            REST, "--run-path", help="SCRIPT is an absolute path. Scripts always run in the worker.", env="RUN_PATH"
        ),
    ] = False,
    shutdown_timeout: Annotated[
        int | None,
        _option(
            REST, "--shutdown-timeout", help="Seconds from SIGTERM to SIGKILL. Default: 10.", env="SHUTDOWN_TIMEOUT"
        ),
    ] = None,
    signals_to_handle: Annotated[
        str,
        _option(REST, "--signals-to-handle", help="Signals that end the job in order.", env="SIGNALS_TO_HANDLE"),
    ] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    monitor_interval: Annotated[
        float, _option(REST, "--monitor-interval", help="No effect: losses are known at once.", env="MONITOR_INTERVAL")
    ] = 0.1,
    start_method: Annotated[
        str, _option(REST, "--start-method", help="No effect on scripts, as in torchrun.", env="START_METHOD")
    ] = "spawn",
    event_log_handler: Annotated[
        str, _option(REST, "--event-log-handler", help="No effect: see the journal.", env="EVENT_LOG_HANDLER")
    ] = "null",
    no_python: Annotated[bool, _option(REST, "--no-python", help="Refused.", env="NO_PYTHON")] = False,
    virtual_local_rank: Annotated[
        bool, _option(REST, "--virtual-local-rank", help="Refused.", env="VIRTUAL_LOCAL_RANK")
    ] = False,
    numa_binding: Annotated[str | None, _option(REST, "--numa-binding", help="Refused.")] = None,
    logs_specs: Annotated[str | None, _option(REST, "--logs-specs", help="Refused.")] = None,
    duplicate_stdout_filters: Annotated[
        str, _option(REST, "--duplicate-stdout-filters", help="Refused.", env="DUPLICATE_STDOUT_FILTERS")
    ] = "",
    duplicate_stderr_filters: Annotated[
        str, _option(REST, "--duplicate-stderr-filters", help="Refused.", env="DUPLICATE_STDERR_FILTERS")
    ] = "",
) -> None:
    """Start a training job, with spares. Takes the place of torchrun, with its options.

    [bold]understudy run --nproc-per-node 4 train.py --lr 3e-4[/bold]
      4 ranks and a spare on this machine. Everything after the script goes to the script.

    [bold]understudy run --nproc-per-node gpu --spares 2 -m my.package.train[/bold]
      A rank for each GPU; two losses in quick succession are survived.

    [bold]understudy run --nnodes 2 --node-rank 0 --master-addr host0 --token-file secret train.py[/bold]
      On host0; on the second host the same with --node-rank 1.

    While it runs: understudy status, understudy migrate --rank 2. Afterwards: understudy report. Every worker's
    output is in the run directory, in workers/. The exit code is the job's.
    """
    values = {name: value for name, value in locals().items() if name in Flags.__dataclass_fields__}
    flags = Flags(**{**values, "program": tuple(program), "replenish": not no_replenish})
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    try:
        plan = launch(flags, run_dir.name if run_dir else name)
        token = _token(token_file, plan)
        _check_tls(tls_cert, tls_key, plan)
        folder = RunDirectory.create(run_dir, name)
    except (Usage, NoRun) as error:
        say(str(error))
        raise typer.Exit(2) from error
    for note in plan.notes:
        say(note)
    raise typer.Exit(execute(plan, folder, token, tls_cert, tls_key))


def execute(
    plan: Launch,
    run: RunDirectory,
    token: str | None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    worker_command: tuple[str, ...] = WORKER_COMMAND,
) -> int:
    """Start what belongs on this node and stay until the job has ended; the job's exit code."""
    scheme = "https" if tls_cert else "http"
    remote = "" if plan.node_rank == 0 else f"{scheme}://{_bracketed(plan.master)}:{plan.port}"
    certificate = str(tls_cert.absolute()) if tls_cert else ""
    run.write_job(
        {
            "job": plan.spec.job,
            "spec": asdict(plan.spec),
            "timeouts": asdict(plan.timeouts),
            "program": list(plan.program),
            "folder": str(Path.cwd()),
            "host": platform.node(),
            "pid": os.getpid(),
            "started": time.time(),
            "python": sys.executable,
            "node_rank": plan.node_rank,
            "orchestrator": remote,
            "certificate": certificate,
        }
    )
    secret = run.write_token(token)
    config = AgentConfig(
        run_dir=run.path,
        node=f"node{plan.node_rank}",
        node_rank=plan.node_rank,
        address=_address(plan),
        program=plan.program,
        workers_per_node=plan.spec.workers_per_node,
        orchestrator=remote,
        certificate=certificate,
        role=plan.role,
        stop=plan.timeouts.stop,
        shown_local_ranks=plan.shown_local_ranks,
        redirects=plan.redirects,
        tees=plan.tees,
        log_dir=plan.log_dir,
        worker_command=worker_command,
    )
    orchestrator = None
    if plan.node_rank == 0:
        orchestrator = [sys.executable, "-P", "-m", "understudy.orchestrator", "--run-dir", str(run.path)]
        orchestrator += ["--host", plan.host, "--spec-json", str(run.job_file)]
        if tls_cert and tls_key:
            orchestrator += ["--tls-cert", certificate, "--tls-key", str(tls_key.absolute())]
    shown = run.path.relative_to(Path.cwd()) if run.path.is_relative_to(Path.cwd()) else run.path
    size, spares = plan.spec.world_size, plan.spec.spares
    say(f"{size} rank{'s' * (size != 1)}, {spares} spare{'s' * (spares != 1)}; run directory {shlex.quote(str(shown))}")
    return Supervisor(run, config, secret, orchestrator, plan.port, plan.signals, say).run()


def _token(file: Path | None, plan: Launch) -> str | None:
    """The job's secret, if it was given; node 0 of a one-node job makes its own."""
    given = os.environ.get("UNDERSTUDY_TOKEN")
    if file is not None:
        try:
            given = file.read_text().strip()
        except OSError as error:
            raise Usage(f"--token-file {file}: {error.strerror}") from error
        if not given:
            raise Usage(f"--token-file {file} is empty")
    if not given and plan.spec.nodes > 1:
        raise Usage(
            "several nodes need a shared secret: write a long random text into a file that only you can read, and "
            "give it on every node with --token-file (or in UNDERSTUDY_TOKEN)"
        )
    return given


def _check_tls(cert: Path | None, key: Path | None, plan: Launch) -> None:
    for flag, path in (("--tls-cert", cert), ("--tls-key", key)):
        if path is not None and not path.is_file():
            raise Usage(f"{flag}: there is no file {path}")
    if key is not None and cert is None:
        raise Usage("--tls-key needs --tls-cert")
    if cert is not None and key is None and plan.node_rank == 0:
        raise Usage("--tls-cert on node 0 needs --tls-key")


def _address(plan: Launch) -> str:
    """Where the other nodes reach this one."""
    if plan.local_addr:
        return plan.local_addr
    if plan.spec.nodes == 1:
        return "127.0.0.1"
    if plan.node_rank == 0:
        return plan.master
    family = socket.AF_INET6 if ":" in plan.master else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing: it asks the routing table
        try:
            probe.connect((plan.master, plan.port or 1))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

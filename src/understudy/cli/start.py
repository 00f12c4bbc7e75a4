"""Start a job on this node: its run directory, the settings of orchestrator and agent, and the wait for its end."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shlex
import socket
import ssl
import sys
import time
from dataclasses import asdict
from pathlib import Path

from understudy.agent.config import WORKER_COMMAND, AgentConfig
from understudy.cli.launch import Launch, Usage
from understudy.cli.run_directory import RunDirectory
from understudy.cli.supervisor import NOTICES, Supervisor
from understudy.common.addresses import by_which_it_reaches
from understudy.common.console import say
from understudy.common.names import CLAIM, TOKEN_VARIABLE
from understudy.common.tls import trusting
from understudy.links.messages import ONLY
from understudy.messages import starting
from understudy.schedulers.base import Place
from understudy.schedulers.local import LocalScheduler


def execute(
    plan: Launch,
    run: RunDirectory,
    token: str | None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    worker_command: tuple[str, ...] = WORKER_COMMAND,
    here: Place | None = None,
) -> int:
    """Start the processes of this node and wait until the job has ended; return the job's exit code. `here`: the scheduler's allocation,
    if there is one.
    """
    scheme = "https" if tls_cert else "http"
    several = plan.endpoints
    remote = "" if plan.node_rank == 0 else f"{scheme}://{_bracketed(plan.master)}:{plan.port}"
    if several:
        remote = ",".join(f"{scheme}://{_bracketed(host)}:{port}" for host, port in several)
    certificate = str(tls_cert.absolute()) if tls_cert else ""
    run.write_job(
        {
            "job": plan.spec.job,
            "spec": asdict(plan.spec),
            "timeouts": asdict(plan.timeouts),
            "policy": plan.policy,
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
        job=ONLY,
        run_dir=run.path,
        node=here.nodes[here.number] if here is not None else f"node{plan.node_rank}",
        node_rank=plan.node_rank,
        address=_address(plan),
        program=plan.program,
        workers_per_node=plan.spec.workers_per_node,
        domain=plan.domain,
        labels=plan.labels,
        orchestrator=remote,
        certificate=certificate,
        role=plan.role,
        timeouts=plan.timeouts,
        shown_local_ranks=plan.shown_local_ranks,
        redirects=plan.redirects,
        tees=plan.tees,
        log_dir=plan.log_dir,
        signals=",".join(number.name for number in plan.signals),
        worker_command=worker_command,
        detectors=plan.detectors,
        began=time.time(),
    )
    orchestrator = None
    if _hosts_orchestrator(plan):
        orchestrator = [sys.executable, "-P", "-m", "understudy.orchestrator", "--run-dir", str(run.path)]
        settings = {"spec": asdict(plan.spec), "timeouts": asdict(plan.timeouts), "policy": plan.policy, "identity": secrets.token_hex(8)}
        orchestrator += ["--host", plan.host, "--spec-json", json.dumps(settings)]
        if tls_cert and tls_cert.is_dir():
            orchestrator += ["--tls-cert", f"{certificate}/tls.crt", "--tls-key", f"{certificate}/tls.key"]
        elif tls_cert and tls_key:
            orchestrator += ["--tls-cert", certificate, "--tls-key", str(tls_key.absolute())]
        if several:
            orchestrator += ["--members", remote, "--number", str(plan.node_rank), "--trust", certificate]
        if here is not None:
            orchestrator += ["--scheduler", here.scheduler]
        if here is not None and plan.spec.floating:
            _write_claim(plan, run, config, remote or f"{scheme}://{_bracketed(plan.master)}:{plan.port}")
    shown = run.path.relative_to(Path.cwd()) if run.path.is_relative_to(Path.cwd()) else run.path
    size, spares = plan.spec.world_size, plan.spec.spares
    # Some schedulers send a signal to every process of a job. Those for the scripts must reach only them (`agent.notices`).
    starts = LocalScheduler(NOTICES if here is not None else ())
    quiet = here is not None and here.number > 0  # all nodes print to one place there
    if not quiet:
        ranked, spared = f"{size} rank{'s' * (size != 1)}", f"{spares} spare{'s' * (spares != 1)}"
        say(starting.STARTED(ranks=ranked, spares=spared, folder=shlex.quote(str(shown))))
    return Supervisor(
        run, config, secret, orchestrator, plan.port, plan.signals, say, several=bool(several), quiet=quiet, scheduler=starts
    ).run()


def _write_claim(plan: Launch, run: RunDirectory, config: AgentConfig, orchestrator: str) -> None:
    """Write the settings for the agents of nodes that the job will claim. They find their own address (`claimed`)."""
    common = config.with_(node="", address="", domain="", labels=(), orchestrator=orchestrator, spares=plan.spec.workers_per_node)
    first = plan.spec.nodes + plan.spec.spare_nodes
    claim = {"options": plan.claim_options, "config": common.as_dict(), "first": first}
    (run.path / CLAIM).write_text(json.dumps(claim, indent=1) + "\n")


def job_token(file: Path | None, plan: Launch) -> str | None:
    """Return the job's secret, if it was given; node 0 of a one-node job creates its own."""
    given = os.environ.get(TOKEN_VARIABLE)
    if file is not None:
        try:
            given = file.read_text().strip()
        except OSError as error:
            raise Usage(starting.TOKEN_FILE_UNREADABLE(path=file, reason=error.strerror)) from error
        if not given:
            raise Usage(starting.TOKEN_FILE_EMPTY(path=file))
    if not given and plan.spec.nodes + plan.spec.spare_nodes > 1:
        raise Usage(starting.SECRET_NEEDED())
    return given


def check_tls(cert: Path | None, key: Path | None, plan: Launch) -> None:
    if cert is not None and cert.is_dir():
        if key is not None:
            raise Usage(starting.TLS_FOLDER_AND_KEY(path=cert))
        if _hosts_orchestrator(plan) and not ((cert / "tls.crt").is_file() and (cert / "tls.key").is_file()):
            raise Usage(starting.TLS_FOLDER_INCOMPLETE(path=cert, node_rank=plan.node_rank))
    for flag, path in (("--tls-cert", cert), ("--tls-key", key)):
        if path is not None and path.is_dir():
            continue
        if path is not None and not path.is_file():
            raise Usage(starting.TLS_FILE_MISSING(option=flag, path=path))
    if key is not None and cert is None:
        raise Usage(starting.KEY_WITHOUT_CERTIFICATE())
    if cert is not None and key is None and _hosts_orchestrator(plan) and not cert.is_dir():
        raise Usage(starting.CERTIFICATE_WITHOUT_KEY(node_rank=plan.node_rank))
    try:
        if cert is not None:
            trusting(str(cert))
        if cert is not None and key is not None:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise Usage(starting.TLS_UNUSABLE(reason=error.strerror or str(error))) from error


def _hosts_orchestrator(plan: Launch) -> bool:
    """Return whether this node runs an orchestrator: node 0 does, or one node for each endpoint."""
    return plan.node_rank < max(1, len(plan.endpoints))


def _address(plan: Launch) -> str:
    """Return the address at which the other nodes reach this one."""
    if plan.local_addr:
        return plan.local_addr
    if plan.alone:
        return "127.0.0.1"
    if _hosts_orchestrator(plan):
        return plan.master
    return by_which_it_reaches(plan.master, plan.port or 1) or socket.gethostname()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

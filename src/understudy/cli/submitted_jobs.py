"""Submit jobs to an orchestrator, follow their output, list them, and end them."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from understudy.cli.client import Denied, NoAnswer, Patience, Server, of_job
from understudy.cli.errors import errors_printed
from understudy.cli.launch import Launch
from understudy.cli.target import Certificate, OrchestratorUrl, TokenFile, service
from understudy.common.bounds import plain
from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.links.submission import shared
from understudy.messages import asking

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job, as understudy jobs lists it.")]
OURS = {TOKEN_VARIABLE, "UNDERSTUDY_DATABASE", "UNDERSTUDY_TLS"}  # secrets of the service, which no script needs
_ENDED = ("finished", "failed")


def submit(plan: Launch, server: Server, detach: bool) -> int:
    """Submit the job and, unless `detach`, show its output until it has ended; return the job's exit code."""
    spec = plan.spec
    request = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", spec.job),
        "program": list(plan.program),
        "folder": str(Path.cwd()),
        **shared(spec),
        "role": plan.role,
        "timeouts": asdict(plan.timeouts),
        "policy": plan.policy,
        "environment": {name: value for name, value in os.environ.items() if name not in OURS},
    }
    with errors_printed():
        job = str(server.call("POST", "/v1/jobs", request)["job"])
    say(asking.SUBMITTED(job=job, url=server.url, ranks=f"{spec.world_size} rank{'s' * (spec.world_size != 1)}", spares=spec.spares))
    if detach:
        say(asking.DETACHED_AT_ONCE(job=job))
        return 0
    try:
        return follow(server, job)
    except KeyboardInterrupt:
        say(asking.DETACHED(job=job))
        return 0


def follow(server: Server, job: str) -> int:
    """Show a job's output until it has ended, even if the orchestrator is away in between; return its exit code."""
    offset, patience, printed = 0, Patience(), ""
    while True:
        try:
            status = server.call("GET", of_job(job, "status"))
            if status["state"] == "waiting" and status["message"] != printed:
                printed = status["message"]
                say(printed)
            for block in server.stream(of_job(job, f"output?offset={offset}&follow=true")):
                patience.answered()
                sys.stdout.buffer.write(block)
                sys.stdout.buffer.flush()
                offset += len(block)
            status = server.call("GET", of_job(job, "status"))
            if status["state"] in _ENDED:
                return int(status["exit_code"])
        except NoAnswer as error:
            if patience.over():
                say(asking.FOLLOWING_GIVEN_UP(reason=str(error), job=job))
                return 1
            time.sleep(0.2)
        except Denied as error:
            say(str(error))
            return 1


def logs(
    job: JobArgument,
    follow_: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends; the exit code is the job's.")] = False,
    orchestrator: OrchestratorUrl = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """Show the output of a job."""
    server = _server(orchestrator, token_file, tls_cert)
    if follow_:
        try:
            raise typer.Exit(follow(server, job))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    with errors_printed():
        for block in server.stream(of_job(job, "output")):
            sys.stdout.buffer.write(block)


def cancel(
    job: JobArgument,
    reason: Annotated[str, typer.Option("--reason", help="Reason, recorded in the journal.")] = "understudy cancel",
    orchestrator: OrchestratorUrl = "",
    token_file: TokenFile = None,
    tls_cert: Certificate = None,
) -> None:
    """End a job on all its nodes, or withdraw it if it is still waiting."""
    with errors_printed():
        _server(orchestrator, token_file, tls_cert).call("POST", of_job(job, "stop"), {"reason": reason, "exit_code": 143})
    say(asking.NAMED_JOB_STOPS(job=job))


def jobs(as_json: AsJson = False, orchestrator: OrchestratorUrl = "", token_file: TokenFile = None, tls_cert: Certificate = None) -> None:
    """List the jobs of an orchestrator."""
    _list(_server(orchestrator, token_file, tls_cert), "/v1/jobs", as_json)


def nodes(as_json: AsJson = False, orchestrator: OrchestratorUrl = "", token_file: TokenFile = None, tls_cert: Certificate = None) -> None:
    """List the nodes of an orchestrator, with their slots."""
    _list(_server(orchestrator, token_file, tls_cert), "/v1/nodes", as_json)


def _server(url: str, token_file: Path | None, certificate: Path | None) -> Server:
    if not url:
        say(asking.ORCHESTRATOR_NEEDED())
        raise typer.Exit(2)
    return service(url, token_file, certificate)


def _list(server: Server, path: str, as_json: bool) -> None:
    with errors_printed():
        rows: list[dict[str, Any]] = server.call("GET", path)
    if as_json:
        print(json.dumps(rows, indent=1))
    elif not rows:
        say(asking.NOTHING_LISTED())
    else:
        table = Table(*rows[0])
        for row in rows:
            table.add_row(
                *(Text(plain(", ".join(map(str, cell)) if isinstance(cell, list | dict) else str(cell))) for cell in row.values())
            )
        Console().print(table)

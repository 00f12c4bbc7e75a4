"""Find the job that a command is about: that of a run directory, or one that was submitted to an orchestrator."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.client import NoAnswer, Server
from understudy.cli.errors import errors_printed
from understudy.cli.run_directory import NoRun, RunDirectory
from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.common.tls import trusting
from understudy.links.messages import ONLY
from understudy.messages import asking

SERVICE = "A job that was submitted to an orchestrator"

RunDir = Annotated[
    Path | None,
    typer.Option("--run-dir", help="The run's folder. Default: the latest run below the current folder, ./RUN or ./FOLDER/RUN."),
]
OrchestratorUrl = Annotated[
    str,
    typer.Option(
        "--orchestrator",
        envvar="UNDERSTUDY_ORCHESTRATOR",
        help="URL of the orchestrator, or of several, separated by commas.",
        rich_help_panel=SERVICE,
    ),
]
JobName = Annotated[
    str, typer.Option("--job", help="Name of the job at the orchestrator. Default: the latest job.", rich_help_panel=SERVICE)
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the orchestrator's secret or a token (or UNDERSTUDY_TOKEN).", rich_help_panel=SERVICE),
]
TLS = "The orchestrator's certificate (PEM), or a folder with ca.crt, tls.crt and tls.key (understudy certs); or UNDERSTUDY_TLS."
Certificate = Annotated[Path | None, typer.Option("--tls", "--tls-cert", help=TLS, rich_help_panel=SERVICE)]


@dataclass(frozen=True)
class Target:
    """A job, and where to ask about it: an orchestrator, or a run directory with its address."""

    job: str
    server: Server | None
    run: RunDirectory | None = None


def service(url: str, token_file: Path | None, certificate: Path | None) -> Server:
    """Return the server at `url`. Ends the command if it is not an address, or if the secret or the certificate cannot be read."""
    for one in url.split(","):
        if not re.fullmatch(r"https?://[^/:\s]+(:\d+)?/?|https?://\[[0-9a-fA-F:]+\](:\d+)?/?", one.strip()):
            say(asking.URL_FORM(url=one))
            raise typer.Exit(2)
    certificate = certificate or (Path(os.environ["UNDERSTUDY_TLS"]) if os.environ.get("UNDERSTUDY_TLS") else None)
    try:
        token = token_file.read_text().strip() if token_file is not None else os.environ.get(TOKEN_VARIABLE, "").strip()
        if certificate is not None:
            trusting(str(certificate))
    except ssl.SSLError as error:
        say(asking.TRUST_UNUSABLE(path=certificate, reason=error.strerror or str(error)))
        raise typer.Exit(2) from error
    except OSError as error:
        say(asking.FILE_UNREADABLE(path=error.filename or certificate, reason=error.strerror))
        raise typer.Exit(2) from error
    return Server(url.rstrip("/"), token, str(certificate.absolute()) if certificate is not None else "")


def target(run_dir: Path | None, url: str, job: str, token_file: Path | None, certificate: Path | None) -> Target:
    """Return the job that the options name. Ends the command if there is none."""
    if run_dir is None and url:
        server = service(url, token_file, certificate)
        return Target(job or _latest(server), server)
    if job:
        say(asking.JOB_WITHOUT_ORCHESTRATOR())
        raise typer.Exit(2)
    try:
        run = RunDirectory.find(run_dir)
    except NoRun as error:
        say(str(error))
        raise typer.Exit(2) from error
    try:
        return Target(ONLY, Server.of(run), run)
    except NoAnswer:
        return Target(ONLY, None, run)


def _latest(server: Server) -> str:
    with errors_printed():
        jobs = server.call("GET", "/v1/jobs")
    if not jobs:
        say(asking.NO_JOBS(url=server.url))
        raise typer.Exit(1)
    return str(jobs[-1]["job"])

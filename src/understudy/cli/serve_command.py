"""`understudy orchestrator` and `understudy agent`: run a service for many jobs on many nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from understudy.agent.node import NodeAgent, NodeConfig
from understudy.agent.orchestrator_link import Refused
from understudy.cli.launch import Usage, labels
from understudy.cli.target import TLS, service
from understudy.common.console import say
from understudy.core.model import Timeouts
from understudy.detectors.choice import choose, read_file
from understudy.links.messages import BadMessage, check_node
from understudy.messages import tools

STATE = Path("understudy-state")


def orchestrator(
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT to listen on. Any host but the loopback address needs a token or --tls.")
    ] = "127.0.0.1:29400",
    state_dir: Annotated[Path, typer.Option("--state-dir", help="Folder for the journal and the state of jobs.")] = STATE,
    database: Annotated[
        str,
        typer.Option(
            "--database",
            envvar="UNDERSTUDY_DATABASE",
            help="postgresql://... for a journal that several orchestrators share; one of them leads. Default: a file in --state-dir.",
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the secret of users and agents (or UNDERSTUDY_TOKEN)."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate chain (PEM): enables https, and disables http.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Key of the certificate (PEM).")] = None,
    tls: Annotated[
        Path | None,
        typer.Option(
            "--tls",
            envvar="UNDERSTUDY_TLS",
            help="Folder with tls.crt, tls.key and ca.crt (understudy certs): mutual TLS. Without a token, only certificates are accepted.",
        ),
    ] = None,
) -> None:
    """Serve jobs: they are submitted with [bold]understudy run --orchestrator URL[/bold] and run on the nodes whose agents are connected.

    [bold]understudy orchestrator --listen 10.0.0.5:29400 --token-file secret[/bold]

    Ending it does not end any job: training continues without it. An orchestrator that is started again with the same folder manages the
    jobs again.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        say(tools.LISTEN_FORM(address=listen))
        raise typer.Exit(2)
    command = [
        sys.executable,
        "-P",
        "-m",
        "understudy.orchestrator",
        "--state-dir",
        str(state_dir),
        "--host",
        host.strip("[]"),
        "--port",
        port,
    ]
    for flag, path in (("--token-file", token_file), ("--tls-cert", tls_cert), ("--tls-key", tls_key), ("--tls", tls)):
        command += [flag, str(path)] if path is not None else []
    os.environ["UNDERSTUDY_DATABASE"] = database  # not as an argument: it may contain a password
    os.execv(sys.executable, command)


def agent(
    orchestrator: Annotated[str, typer.Option("--orchestrator", envvar="UNDERSTUDY_ORCHESTRATOR", help="URL of the orchestrator.")],
    name: Annotated[str, typer.Option("--name", help="This node's name. Default: the host's.")] = "",
    slots: Annotated[
        int, typer.Option("--slots", min=1, help="Number of workers that this node can run, for example one for each GPU.")
    ] = 1,
    failure_domain: Annotated[str, typer.Option("--failure-domain", help="Failure domain of this node: its rack, its switch.")] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="Location of this node, as KEY=VALUE. Repeatable. Keys: nvlink-domain, switch, failure-domain."),
    ] = None,
    address: Annotated[
        str, typer.Option("--address", help="Address at which other nodes reach this one's workers. Default: detected.")
    ] = "",
    state_dir: Annotated[
        Path, typer.Option("--state-dir", help="Folder for workers' output, and for data by which a restarted agent finds its workers.")
    ] = STATE,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the orchestrator's secret, or a token for agents (or UNDERSTUDY_TOKEN).")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls", "--tls-cert", help=TLS)] = None,
    heartbeat: Annotated[float, typer.Option("--heartbeat", min=0.05, help="Seconds between two heartbeats.")] = Timeouts.heartbeat,
    detectors: Annotated[
        Path | None,
        typer.Option("--detectors", help="Detectors of this node: a TOML file (understudy detectors)."),
    ] = None,
) -> None:
    """Serve a node: start workers here for the jobs of an orchestrator.

    [bold]understudy agent --orchestrator http://10.0.0.5:29400 --slots 8 --failure-domain rack3 --token-file secret[/bold]

    Ending it does not end any job: its workers continue, and the next agent with the same folder takes control of them.
    """
    try:
        named = dict(labels(label or []))
    except Usage as error:
        say(str(error))
        raise typer.Exit(2) from error
    try:
        text = read_file(detectors) if detectors is not None else ""
        choose(text)
    except ValueError as error:
        for line in str(error).splitlines():
            say(line)
        raise typer.Exit(2) from error
    server = service(orchestrator, token_file, tls_cert)
    config = NodeConfig(
        orchestrator=server.url,
        node=name or socket.gethostname(),
        address=address or _address(server.url),
        slots=slots,
        domain=failure_domain,
        labels=named,
        state=state_dir.absolute(),
        certificate=server.certificate,
        heartbeat=heartbeat,
        detectors=text,
    )
    try:
        check_node(config.hello(()))
    except BadMessage as error:
        say(str(error))
        raise typer.Exit(2) from error
    raise typer.Exit(asyncio.run(_serve(config, server.token)))


async def _serve(config: NodeConfig, token: str) -> int:
    running = asyncio.ensure_future(NodeAgent(config, token, say).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        say(tools.AGENT_ENDS())
    except Refused as error:
        say(str(error))
        return 1
    return 0


def _address(url: str) -> str:
    """Return this host's address on the route to the orchestrator. Sends nothing: it reads the routing table."""
    parts = urlsplit(url.partition(",")[0])
    host = parts.hostname or ""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, parts.port or 1))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])

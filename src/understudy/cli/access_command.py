"""`understudy token` and `understudy certs`: create what others need to be admitted by an orchestrator."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from understudy.common.console import say
from understudy.common.names import TOKEN_VARIABLE
from understudy.messages import starting, tools
from understudy.orchestrator.security import Access, Role, read_secrets

JobOption = Annotated[str, typer.Option("--job", help="For this job only. Default: for all.")]
NODE = "The node that an agent serves, as understudy agent calls it: its --name, or else the host's name."
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the certificate authority.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the server or client, and of its folder in DIR.", show_default=False)]
Days = Annotated[int, typer.Option("--days", min=1, help="Days for which the certificate is valid.")]

ROLES = (
    "read: read only. operate: also migrate, drain and end. submit: also start jobs. evidence: report evidence against nodes only. "
    "agent: serve a node. worker: serve a job's workers (for the agent of "
    "a single job; a service creates these tokens itself)."
)


def token(
    role: Annotated[Role, typer.Option("--role", help=ROLES)],
    job: JobOption = "",
    node: Annotated[str, typer.Option("--node", help=f"{NODE} Needed with --role agent.")] = "",
    days: Annotated[float, typer.Option("--days", min=0.0, help="Days for which it is valid. Default: until the secret changes.")] = 0.0,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="File with the secret (or UNDERSTUDY_TOKEN).")] = None,
) -> None:
    """Print a token with fewer permissions than the orchestrator's secret, from which it is derived.

    [bold]understudy token --role read --token-file secret > reader[/bold]

    [bold]understudy token --role agent --node node1 --token-file secret > node1.token[/bold]

    Use it in place of the secret: [bold]--token-file reader[/bold] or UNDERSTUDY_TOKEN.
    """
    if (role is Role.AGENT) != bool(node):
        say(tools.AGENT_NEEDS_NODE() if not node else tools.NODE_OF_AGENT(role=role))
        raise typer.Exit(2)
    try:
        secrets = read_secrets(token_file, os.environ.get(TOKEN_VARIABLE, ""))
    except OSError as error:
        say(starting.TOKEN_FILE_UNREADABLE(path=token_file, reason=error.strerror))
        raise typer.Exit(2) from error
    except ValueError as error:
        say(str(error))
        raise typer.Exit(2) from error
    if not secrets:
        say(tools.SECRET_NEEDED_FOR_TOKEN())
        raise typer.Exit(2)
    print(Access(secrets).token(role, job, days, node))


certs = typer.Typer(
    no_args_is_help=True,
    help="""Create certificates for mutual TLS: a private authority for tests and small clusters.

    [bold]understudy certs init tls[/bold]\n
    [bold]understudy certs server tls head --host 10.0.0.5[/bold]\n
    [bold]understudy certs client tls node1 --role agent[/bold]\n
    [bold]understudy orchestrator --listen 10.0.0.5:29400 --tls tls/head[/bold]\n
    [bold]understudy agent --orchestrator https://10.0.0.5:29400 --tls tls/node1[/bold]
    """,
)


@certs.command()
def init(folder: Folder, days: Days = 3650) -> None:
    """Create the certificate authority: DIR/ca. Its key signs all the others; keep it where only you can read it."""
    from understudy.orchestrator.certificates import make_authority

    _made(lambda: make_authority(folder, days))


@certs.command()
def server(
    folder: Folder,
    name: Name,
    host: Annotated[list[str], typer.Option("--host", help="Name or address at which it is reached. Repeatable.")],
    days: Days = 365,
) -> None:
    """Create an orchestrator's certificate: DIR/NAME, for --tls."""
    from understudy.orchestrator.certificates import issue_server

    _made(lambda: issue_server(folder, name, host, days))


@certs.command()
def client(
    folder: Folder,
    name: Name,
    role: Annotated[list[Role], typer.Option("--role", help=f"Repeatable. {ROLES}")],
    job: JobOption = "",
    node: Annotated[str, typer.Option("--node", help=f"{NODE} Default: NAME.")] = "",
    days: Days = 365,
) -> None:
    """Create the certificate of an agent or of a user: DIR/NAME, for --tls."""
    from understudy.orchestrator.certificates import issue_client

    _made(lambda: issue_client(folder, name, role, job, node or name, days))


def _made(make: Callable[[], Path]) -> None:
    try:
        place = make()
    except FileExistsError as error:
        say(tools.CERTIFICATE_EXISTS(path=error.filename))
    except FileNotFoundError as error:
        say(tools.AUTHORITY_MISSING(path=error.filename))
    except OSError as error:
        say(tools.CERTIFICATE_UNWRITTEN(reason=str(error)))
    except ValueError as error:
        say(str(error))
    else:
        print(place)
        return
    raise typer.Exit(1)

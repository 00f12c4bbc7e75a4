"""`understudy network`: keep a job going when one of several networks between its hosts fails."""

from __future__ import annotations

import typer

from understudy.cli.exit_codes import epilog
from understudy.cli.network_build_command import build, env

network = typer.Typer(
    name="network",
    help="Keep a job going when one of several networks between its hosts fails.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
network.command(epilog=epilog("network build"))(build)
network.command(epilog=epilog("network env"))(env)

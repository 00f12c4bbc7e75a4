"""`understudy network build` and `understudy network env`: the network plugin for NCCL and RCCL."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from understudy.common.console import say
from understudy.messages import network_plugin
from understudy.network import plugin

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder of the library, such as one that all nodes share. Default: in the user's cache.", show_default=False
    ),
]


def build(out: Out = None) -> None:
    """Compile the network plugin, which keeps NCCL and RCCL over TCP going when one of several networks fails.

    This needs GNU make and a C++20 compiler. [bold]understudy network env[/bold] then prints the variables that select the plugin.
    """
    try:
        found = plugin.build(out or plugin.default_folder())
    except plugin.PluginError as error:
        say(str(error))
        raise typer.Exit(2) from error
    say(network_plugin.BUILT(folder=found.parent))


def env(out: Out = None, rccl: Annotated[bool, typer.Option("--rccl", help="For RCCL, on GPUs of AMD.")] = False) -> None:
    """Print the variables with which NCCL, or RCCL, uses the plugin, as commands of a shell.

    [bold]eval "$(understudy network env)"[/bold]
    """
    try:
        found = plugin.variables(out or plugin.default_folder(), plugin.RCCL if rccl else plugin.NCCL)
    except plugin.PluginError as error:
        say(str(error))
        raise typer.Exit(2) from error
    for name, value in found.items():
        print(f"export {name}={shlex.quote(value)}")

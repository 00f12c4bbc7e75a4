"""`understudy policy`: what is done about evidence, explained before it is relied on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.job_commands import AsJson
from understudy.common.console import say
from understudy.policy.engine import explain
from understudy.policy.rules import BadPolicy, default, default_text, read

policy = typer.Typer(
    name="policy",
    help="What is done about evidence against a worker, a node or a part of it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: the policy that ships.", show_default=False)]


@policy.command()
def check(file: File = None, as_json: AsJson = False) -> None:
    """Read a policy and say in sentences what it does.

    Exit code: 0 if it can be used, 2 if not; then every mistake is told with its place.

    [bold]understudy policy show > policy.toml[/bold]
      The one that ships, to begin with.

    [bold]understudy policy check policy.toml[/bold]
    """
    try:
        found = default() if file is None else read(file)
    except BadPolicy as error:
        for line in str(error).splitlines():
            say(line)
        raise typer.Exit(2) from error
    if as_json:
        print(json.dumps(found.model_dump(mode="json"), indent=1))
    else:
        print("\n".join(explain(found)))


@policy.command()
def show() -> None:
    """Print the policy that ships, which is a file to begin with."""
    print(default_text(), end="")

"""`understudy policy`: explain what follows from evidence, before a policy is used."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from understudy.cli.exit_codes import epilog
from understudy.cli.job_commands import AsJson
from understudy.common.bounds import plain
from understudy.common.console import say
from understudy.messages import tools
from understudy.policy.engine import explain
from understudy.policy.rules import BadPolicy, Policy, default, default_text, read

policy = typer.Typer(
    name="policy",
    help="Show or check a policy: what follows from evidence against a worker, a node or a part of it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: the built-in policy.", show_default=False)]


@policy.command(epilog=epilog("policy check"))
def check(
    file: File = None,
    dry_run: Annotated[
        Path | None,
        typer.Option(
            "--dry-run",
            metavar="FOLDER",
            help="Folder of a run, or of a service's state: show what the policy would have done with its evidence.",
        ),
    ] = None,
    job: Annotated[str, typer.Option("--job", help="With --dry-run: only this job.")] = "",
    as_json: AsJson = False,
) -> None:
    """Read a policy and describe what it does, or what it would have done with a past journal.

    [bold]understudy policy show > policy.toml[/bold]
      Start from the built-in policy.

    [bold]understudy policy check policy.toml[/bold]

    [bold]understudy policy check policy.toml --dry-run understudy-runs/RUN[/bold]
    """
    try:
        found = default() if file is None else read(file)
    except BadPolicy as error:
        for line in str(error).splitlines():
            say(line)
        raise typer.Exit(2) from error
    if dry_run is not None:
        _dry_run(found, dry_run, job, as_json)
    elif as_json:
        print(json.dumps(found.model_dump(mode="json"), indent=1))
    else:
        print("\n".join(explain(found)))


def _dry_run(found: Policy, folder: Path, job: str, as_json: bool) -> None:
    # Imported here, because they import SQLAlchemy, which the other commands do without.
    from understudy.orchestrator import dry_run, journal, migrations, views

    try:
        recorded = dry_run.jobs(folder, job)
    except (migrations.NewerJournal, views.NoJournal, journal.Unreadable, journal.Damaged) as error:
        say(str(error))
        raise typer.Exit(2) from error
    steps = [step for one in recorded.values() for step in dry_run.steps(found, one)]
    if as_json:
        print(json.dumps([asdict(step) for step in steps], indent=1))
        return
    table = Table("when", *(["job"] if len(recorded) > 1 else []), "what was seen", "what would have followed")
    for step in steps:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step.at))
        table.add_row(when, *([step.job] if len(recorded) > 1 else []), Text(plain(step.seen)), Text(plain(step.done)))
    seen = sum(map(dry_run.evidence, recorded.values()))
    of = {"evidence": f"{seen} piece{'s' * (seen != 1)}"}
    if not steps:
        print(tools.DRY_RUN_NOTHING(**of))
    else:
        print(tools.DRY_RUN_ANSWERS(answers=f"{len(steps)} answer{'s' * (len(steps) != 1)}", **of))
        Console().print(table)


@policy.command()
def show() -> None:
    """Print the built-in policy, as a file to start from."""
    print(default_text(), end="")

"""`understudy status`, `report`, `migrate`, `stop`: questions and requests to a running job, or to its journal.

The orchestrator answers while the job runs. When it does not, status and report come from the journal, through the
same functions that the orchestrator uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from understudy.cli import client
from understudy.cli.run_directory import NoRun, RunDirectory
from understudy.cli.say import say
from understudy.cli.show import report_view, status_view

RunDir = Annotated[
    Path | None,
    typer.Option("--run-dir", help="The run's folder. Default: the latest one in ./understudy-runs."),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


def status(run_dir: RunDir = None, as_json: AsJson = False) -> None:
    """Show who holds which rank, the spares, and the last step that every rank committed.

    Works while the job runs and after it (then it shows how the job ended).
    """
    _print("status", run_dir, as_json, status_view)


def report(run_dir: RunDir = None, as_json: AsJson = False) -> None:
    """Show every incident: what was lost or moved, how long each phase took, what was transferred and verified.

    Works while the job runs and after it.
    """
    _print("report", run_dir, as_json, report_view)


def migrate(
    rank: Annotated[int, typer.Option("--rank", help="The rank to move.")],
    run_dir: RunDir = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the report.")] = "",
) -> None:
    """Move a healthy rank to a spare at a step boundary, without losing a step.

    [bold]understudy migrate --rank 2 --reason "fan of GPU 2"[/bold]
    """
    _ask("/migrate", run_dir, {"rank": rank, "reason": reason})
    say(f"rank {rank} moves to a spare at the next step boundary; understudy report shows when it has")


def stop(
    run_dir: RunDir = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the journal.")] = "understudy stop",
    exit_code: Annotated[int, typer.Option("--exit-code", help="What `understudy run` exits with.")] = 143,
) -> None:
    """End a running job on all its nodes."""
    _ask("/stop", run_dir, {"reason": reason, "exit_code": exit_code})
    say("the job is stopping")


def _find(run_dir: Path | None) -> RunDirectory:
    try:
        return RunDirectory.find(run_dir)
    except NoRun as error:
        say(str(error))
        raise typer.Exit(2) from error


def _ask(path: str, run_dir: Path | None, body: dict[str, Any]) -> None:
    run = _find(run_dir)
    try:
        client.call(run, "POST", path, body)
    except client.NoAnswer as error:
        say(f"no job is running in {run.path} ({error})")
        raise typer.Exit(1) from error
    except client.Denied as error:
        say(str(error))
        raise typer.Exit(1) from error


def _print(what: str, run_dir: Path | None, as_json: bool, view: Callable[[dict[str, Any]], RenderableType]) -> None:
    run = _find(run_dir)
    try:
        answer = client.call(run, "GET", f"/{what}")
    except client.NoAnswer as error:
        if not run.journal_file.exists():
            say(f"{run.path} has no journal: the job did not start, or its orchestrator is on another node ({error})")
            raise typer.Exit(1) from error
        answer = _from_journal(run, what)
    except client.Denied as error:
        say(str(error))
        raise typer.Exit(1) from error
    if as_json:
        print(json.dumps(answer, indent=1))
    else:
        Console().print(view(answer))


def _from_journal(run: RunDirectory, what: str) -> Any:
    from understudy.orchestrator import views  # here, because it brings SQLAlchemy, which the other commands do without

    return views.offline_status(run.path) if what == "status" else views.offline_report(run.path)

"""`understudy journal`: whether the journal of a run or of a service can be read, a copy of it, and the way back from one."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from understudy.cli.job_commands import AsJson
from understudy.common.console import say
from understudy.common.names import JOURNAL
from understudy.messages import journals

journal = typer.Typer(
    name="journal",
    help="Verify, back up and restore the journal of a run or of a service.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run, or of a service's state (--state-dir).")]


@dataclass(frozen=True)
class _Job:
    job: str
    events: int
    problem: str  # why it cannot be used; "": it can


@journal.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read the whole journal, and replay every job. Changes nothing; the orchestrator may run.

    Exit code: 0 if all of it can be used, 1 if not, 2 if there is none.
    """
    found = _verified(_present(folder / JOURNAL))
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            print(f"{one.job}: {one.problem or f'{one.events} events, complete'}")
        print(journals.VERIFIED(jobs=len(found), damaged=sum(bool(one.problem) for one in found)))
    if any(one.problem for one in found):
        raise typer.Exit(1)


@journal.command()
def backup(folder: Folder, copy: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; must not exist.")]) -> None:
    """Copy the journal while it is written, and verify the copy.

    Exit code: 0; 1 if the copy has damage, which the journal has, too; 2 if nothing was copied.
    """
    source = _present(folder / JOURNAL)
    if copy.exists():
        _refuse(journals.COPY_EXISTS(path=copy))
    partial = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        with closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as there, closing(sqlite3.connect(partial)) as here:
            there.backup(here)
        found = _verified(partial)
        partial.rename(copy)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        _refuse(journals.NOT_COPIED(path=source, copy=copy, reason=str(error)))
    damaged = [one for one in found if one.problem]
    for one in damaged:
        say(one.problem)
    say(journals.COPIED(copy=copy, jobs=len(found), damaged=len(damaged)))
    if damaged:
        raise typer.Exit(1)


@journal.command()
def restore(folder: Folder, copy: Annotated[Path, typer.Argument(metavar="FILE", help="A copy that `backup` has made.")]) -> None:
    """Put a copy in the place of the journal, while no orchestrator runs. What was there is kept beside it.

    Workers that have begun since the copy was made are unknown to it, and are ended: so restore the newest one.

    Exit code: 0; 2 if nothing was changed.
    """
    _present(copy)
    for one in _verified(copy):
        if one.problem:
            _refuse(one.problem)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        kept = _free(folder)
        for file in sorted(folder.glob(f"{JOURNAL}*")):
            kept.mkdir(exist_ok=True)
            file.rename(kept / file.name)
        partial = folder / f".{JOURNAL}.{os.getpid()}"
        shutil.copyfile(copy, partial)
        partial.rename(folder / JOURNAL)
    say(journals.RESTORED(path=folder / JOURNAL, copy=copy, kept=kept if kept.exists() else "nothing was there"))


def _verified(place: Path) -> list[_Job]:
    """Every job of the journal. Ends the command where that is none."""
    # Here, because they bring SQLAlchemy, which the other commands do without.
    from understudy.orchestrator import journal as journal_file
    from understudy.orchestrator.migrations import NewerJournal

    aside: dict[str, str] = {}
    try:
        jobs = journal_file.read_all(place, aside=aside)
    except (journal_file.Damaged, NewerJournal) as error:
        _refuse(str(error), 1)
    found = [_Job(name, 0, why) for name, why in aside.items()]
    for name, recorded in jobs.items():
        problem = ""
        try:
            journal_file.replay(recorded.settings, recorded.events)
        except Exception as error:  # whatever a damaged one leads to
            problem = journals.NOT_REPLAYED(job=name, error=f"{type(error).__name__}: {error}")
        found.append(_Job(name, len(recorded.events), problem))
    return found


def _present(place: Path) -> Path:
    if not place.is_file():
        _refuse(journals.NO_JOURNAL(path=place))
    return place


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """As an orchestrator does it."""
    with open(folder / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _refuse(journals.IN_USE(path=folder))
        yield


def _free(folder: Path) -> Path:
    """A name that nothing has."""
    number = 1
    while (found := folder / f"before-restore-{number}").exists():
        number += 1
    return found


def _refuse(text: str, code: int = 2) -> NoReturn:
    say(text)
    raise typer.Exit(code)

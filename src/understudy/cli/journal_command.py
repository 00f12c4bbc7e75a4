"""`understudy journal`: verify the journal of a run or of a service, copy it, and restore a copy."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from understudy.cli.exit_codes import epilog
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
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run, or of a service's state (--state-dir).")]


@dataclass(frozen=True)
class _Job:
    job: str
    events: int
    problem: str  # why it cannot be used; "" if it can


@journal.command(epilog=epilog("journal verify"))
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read the whole journal, and replay every job. Changes nothing; the orchestrator may be running."""
    found = _verified(_present(folder / JOURNAL))
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            print(f"{one.job}: {one.problem or f'{one.events} events, complete'}")
        print(journals.VERIFIED(jobs=len(found), damaged=sum(bool(one.problem) for one in found)))
    if any(one.problem for one in found):
        raise typer.Exit(1)


@journal.command(epilog=epilog("journal backup"))
def backup(folder: Folder, copy: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the copy; must not exist.")]) -> None:
    """Copy the journal while it is in use, and verify the copy."""
    source = _present(folder / JOURNAL)
    if copy.exists():
        _refuse(journals.COPY_EXISTS(path=copy))
    with _copied(source, copy) as partial:
        found = _verified(partial)
        partial.rename(copy)
    damaged = [one for one in found if one.problem]
    for one in damaged:
        say(one.problem)
    say(journals.COPIED(copy=copy, jobs=len(found), damaged=len(damaged)))
    if damaged:
        raise typer.Exit(1)


@journal.command(epilog=epilog("journal restore"))
def restore(folder: Folder, copy: Annotated[Path, typer.Argument(metavar="FILE", help="A copy that `backup` created.")]) -> None:
    """Replace the journal with a copy, while no orchestrator is running. The old one is kept in a folder `before-restore-N`.

    Restore the newest copy, because the orchestrator puts aside every job that has continued, or has begun, since the copy was made. A
    job that is put aside continues to train, but no orchestrator manages it: a rank that is lost is not replaced. Jobs whose events in the
    copy are damaged are reported, and are put aside, too.
    """
    _present(copy)
    present = folder / JOURNAL
    if present.exists() and present.samefile(copy):
        _refuse(journals.COPY_EXISTS(path=copy))
    if not folder.is_dir():
        _refuse(journals.NO_JOURNAL(path=folder))
    with _locked(folder), _copied(copy, present) as partial:
        for one in _verified(partial):
            if one.problem:
                say(one.problem)
        owner = (present if present.exists() else folder).stat()
        if os.geteuid() == 0:
            os.chown(partial, owner.st_uid, owner.st_gid)
        kept = _free(folder)
        for name in (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", f"{JOURNAL}-journal"):
            if (folder / name).exists():
                kept.mkdir(mode=0o700, exist_ok=True)
                (folder / name).rename(kept / name)
        partial.rename(present)
    say(journals.RESTORED(path=present, copy=copy, kept=kept if kept.exists() else "nothing was there"))


@contextmanager
def _copied(source: Path, copy: Path) -> Iterator[Path]:
    """Copy `source` and its write-ahead log to a file next to `copy`, which is removed if it is still there at the end. Ends the command if
    that fails."""
    partial = copy.with_name(f".{copy.name}.{os.getpid()}")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as there, closing(sqlite3.connect(partial)) as here:
            there.backup(here)
            here.execute("PRAGMA journal_mode=DELETE")  # one file, which can be read where nothing can be written
        yield partial
    except (sqlite3.Error, OSError) as error:
        _refuse(journals.NOT_COPIED(path=source, copy=copy, reason=str(error)))
    finally:
        partial.unlink(missing_ok=True)


def _verified(place: Path) -> list[_Job]:
    """Read every job of the journal. Ends the command if it cannot be read or has no job."""
    # Imported here, because they import SQLAlchemy, which the other commands do without.
    import sqlalchemy

    from understudy.orchestrator import database
    from understudy.orchestrator import journal as journal_file
    from understudy.orchestrator.migrations import NewerJournal

    aside: dict[str, str] = {}
    try:
        jobs = journal_file.read_all(place, aside=aside, check=database.THOROUGH)
    except (journal_file.Damaged, NewerJournal) as error:
        _refuse(str(error), 1)
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        _refuse(journals.NOT_READ(path=place, reason=str(error)))
    if not (jobs or aside):
        _refuse(journals.EMPTY(path=place))
    found = [_Job(name, 0, why) for name, why in aside.items()]
    for name, recorded in jobs.items():
        problem = ""
        try:
            journal_file.replay(recorded.settings, recorded.events)
        except Exception as error:  # whatever a damaged journal leads to
            problem = journals.NOT_REPLAYED(job=name, error=f"{type(error).__name__}: {error}")
        found.append(_Job(name, len(recorded.events), problem))
    return found


def _present(place: Path) -> Path:
    if not place.is_file():
        _refuse(journals.NO_JOURNAL(path=place))
    return place


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock that an orchestrator holds while it runs. Ends the command if an orchestrator has it."""
    lock = os.open(folder, os.O_RDONLY) if not (folder / "lock").exists() else os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        _refuse(journals.IN_USE(path=folder))
    finally:
        os.close(lock)


def _free(folder: Path) -> Path:
    """Return a name in `folder` that is not taken."""
    number = 1
    while (found := folder / f"before-restore-{number}").exists():
        number += 1
    return found


def _refuse(text: str, code: int = 2) -> NoReturn:
    say(text)
    raise typer.Exit(code)

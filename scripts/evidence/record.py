"""Put the results of a run into the evidence: its figures, its command line, the commit, the date and the machine.

`result`, `noise`, `notes` and the choice of columns and rows are about the old figures and dropped with them; `what` and `view` stay.
"""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.evidence.page import write
from scripts.evidence.store import FOLDER, ROOT, Entry, load, save


def record(
    page: str,
    key: str,
    rows: Sequence[Any],
    columns: Sequence[str] = (),
    result: str = "",
    more: Mapping[str, Any] | None = None,
    folder: Path = FOLDER,
) -> None:
    """Replace the figures of an entry by those of this run, and write the page. `more`: further fields.

    Raises `KeyError` if there is no such entry.
    """
    entries = load(page, folder)
    old = entries[key]
    entry: Entry = {name: old[name] for name in ("what", "view") if name in old}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    entry |= {"result": result, "command": command(), "commit": commit(), "date": today, "machine": machine()}
    entry |= {"columns": list(columns), "rows": [list(row) if isinstance(row, tuple) else row for row in rows]}
    entries[key] = entry | dict(more or {})
    save(page, entries, folder)
    write(page, folder=folder)


def command() -> str:
    """Return the command line of this process as a person types it in the root of the project."""
    program, *arguments = sys.argv
    path = Path(program).resolve()
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    module = name.name == "__main__.py"
    words = ["-m", ".".join(name.parent.parts)] if module else [str(name)]
    return shlex.join(["python", *words, *arguments])


def commit() -> str:
    """Return the commit that is checked out; with a plus sign if files other than the evidence differ from it. Empty: no repository."""
    try:
        head = _git("rev-parse", "--short=8", "HEAD")
        return head + "+" * bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/evidence"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """Describe this machine, and how busy it is."""
    cores = f"{len(os.sched_getaffinity(0))} cores ({platform.machine()})"
    return f"{cores}, Python {platform.python_version()}, torch {version('torch')}, load {os.getloadavg()[0]:.1f}"

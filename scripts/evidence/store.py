"""Read and write results: `docs/evidence/PAGE.json`, one entry for each measurement or test.

The fields of an entry:

    what      what was tried, as a phrase, and `result`, its outcome: one row of the page's summary; empty: no row there
    command   how to run it again; several commands are on several lines
    commit    the commit that was measured, or `recorded`: the commit that put the figures into the repository
    date      of the run, or of `recorded`
    machine   and what else was running there
    noise     why differences between these figures mean nothing; absent: they mean something
    columns, rows   the figures, as text; `shown`: the columns that the page has (absent: all); `hidden`: rows that it lacks, by first cell
    view      how the page shows the rows (`views.py`; absent: as they are)
    notes     sentences about these figures

`record` replaces the figures of an entry and everything that depends on them; `what` and `view` stay.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "evidence"
PAGES = ("proof", "conformance", "benchmarks")

Entry = dict[str, Any]
Entries = dict[str, Entry]


def load(page: str, folder: Path = FOLDER) -> Entries:
    found: Entries = json.loads((folder / f"{page}.json").read_text())
    return found


def save(page: str, entries: Entries, folder: Path = FOLDER) -> None:
    (folder / f"{page}.json").write_text(encoded(entries))


def encoded(entries: Entries) -> str:
    """Encode as JSON with a line for each row, so that a diff shows which figures are new."""
    text = []
    for key, entry in entries.items():
        fields = [f"  {json.dumps(name)}: {_value(value)}" for name, value in entry.items()]
        text.append(f" {json.dumps(key)}: {{\n" + ",\n".join(fields) + "\n }")
    return "{\n" + ",\n".join(text) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[\n" + ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in value) + "\n  ]"
    return json.dumps(value, ensure_ascii=False)


def record(page: str, key: str, rows: Sequence[Any], columns: Sequence[str] = (), result: str = "", folder: Path = FOLDER) -> None:
    """Replace the figures of an entry by those of this run. Everything that was written about the old ones is dropped."""
    entries = load(page, folder)
    old = entries[key]
    entry: Entry = {name: old[name] for name in ("what", "view") if name in old}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    entry |= {"result": result, "command": command(), "commit": commit(), "date": today, "machine": machine()}
    entry |= {"columns": list(columns), "rows": [list(row) if isinstance(row, tuple) else row for row in rows]}
    entries[key] = entry
    save(page, entries, folder)


def command() -> str:
    """Return the command line of this process as a person types it in the root of the project."""
    program, *arguments = sys.argv
    path = Path(program).resolve()
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    module = name.name == "__main__.py"
    words = ["-m", ".".join(name.parent.parts)] if module else [str(name)]
    return shlex.join(["python", *words, *arguments])


def commit() -> str:
    """Return the commit that is checked out; with a plus sign if files differ from it. Empty: no repository."""
    try:
        head = _git("rev-parse", "--short=8", "HEAD")
        return head + "+" * bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """Describe this machine, and how busy it is."""
    cores = f"{len(os.sched_getaffinity(0))} cores ({platform.machine()})"
    return f"{cores}, Python {platform.python_version()}, torch {version('torch')}, load {os.getloadavg()[0]:.1f}"

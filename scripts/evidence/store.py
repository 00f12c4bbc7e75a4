"""Read and write results: `docs/evidence/PAGE.json`, one entry for each measurement or test.

The fields of an entry:

    what      what was tried, as a phrase, and `result`, its outcome: one row of the page's summary; empty: no row there
    command   how to run it again; several commands are on several lines
    commit    the commit that was measured, or several, or `recorded`: the commit that put the figures into the repository
    date      of the run, or of `recorded`
    machine   and what else was running there
    noise     why differences between these figures mean nothing; absent: they mean something
    columns, rows   the figures, as text; `shown`: the columns that the page has (absent: all); `hidden`: rows that it lacks, by first cell
    view      how the page shows the rows (`views.py`; absent: as they are)
    notes     sentences about these figures

`record.py` puts the figures of a run into an entry.
"""

from __future__ import annotations

import json
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

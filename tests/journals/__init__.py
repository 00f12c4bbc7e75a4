"""Journals as earlier versions of Understudy wrote them.

`version1.sql` is the SQLite journal of a service: its job `finished` had lost a rank and ended, its job `running` had lost one and went
on as the orchestrator was killed, and `every` has an event of each kind. `version1.json` is what version 1 said of them, with
the fields that came later; in place of a job's message stands the code that it has today.
`version1.postgres.sql` is how it made its tables in PostgreSQL.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.messages.base import code_of

HERE = Path(__file__).parent
SAID: dict[str, dict[str, Any]] = json.loads((HERE / "version1.json").read_text())  # by job: status, report, request, how many events


def as_version1(found: Mapping[str, Any]) -> dict[str, Any]:
    """A status or report without fields that version 1 did not have, which are empty for its own values."""
    later: tuple[str, ...] = (
        "taints",
        "tainted",
        "drains",
        "evidence",
        "torch",
        "drills",
        "proven",
        "proven_by",
        "device",
        "collectives",
        "compared_bytes",
    )
    later += ("grade", "grades", "why", "uncovered", "without_copies")
    assert not any(found.get(key) for key in later) and not found.get("floating", {}).get("most"), "that version had none"
    inner = {key: [as_version1(one) for one in found[key]] for key in ("ranks", "incidents") if isinstance(found.get(key), list)}
    codes = {"message": code_of(found["message"])} if found.get("message") else {}
    return {key: inner.get(key, codes.get(key, value)) for key, value in found.items() if key not in (*later, "floating", "refused")}


def version1(path: Path) -> Path:
    """The journal as version 1 left it, at `path`."""
    with sqlite3.connect(path) as connection:
        connection.executescript((HERE / "version1.sql").read_text())
    connection.close()
    return path

"""Arm faults that wait inside workers, as files in the folder `chaos` of a run directory.

NAME.json    the fault, its rank and its point; written by `understudy chaos`
NAME.fired   where and when it happened; made by the worker, complete and once (link(2) fails if it is there), before it happens

For a fault from outside that names a point, a worker waits there (`HOLD`) for as long as NAME.json exists.

These are files, because a newcomer that is not started yet must find them, too, and because a user who may write to the run directory may
do anything to the job already. The folder is readable by its owner only.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from understudy.chaos.base import Value

ANY = ""  # point: the next one that is reached
HOLD = ""  # fault: none, but the worker waits here until it is disarmed


@dataclass(frozen=True)
class Armed:
    name: str
    fault: str
    rank: int
    point: str = ANY
    step: int | None = None  # not before so many steps are committed; None: at any time
    values: dict[str, Value] = field(default_factory=dict)
    behind: str = ""  # name of another fault that must happen first; a worker that reaches the point waits for it


class Folder:
    """The armed faults of one run directory. The folder is created when the first fault is armed."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "chaos"

    def arm(self, armed: Armed) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        partial = self.path / f"{armed.name}.partial"
        partial.write_text(json.dumps(asdict(armed)))
        partial.rename(self.path / f"{armed.name}.json")

    def disarm(self, name: str) -> None:
        (self.path / f"{name}.json").unlink(missing_ok=True)

    def names(self) -> list[str]:
        try:
            return [name.removesuffix(".json") for name in os.listdir(self.path) if name.endswith(".json")]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> Armed | None:
        """Read an armed fault; None if it was disarmed meanwhile."""
        try:
            return Armed(**json.loads((self.path / f"{name}.json").read_text()))
        except FileNotFoundError:
            return None

    def is_armed(self, name: str) -> bool:
        return (self.path / f"{name}.json").exists()

    def claim(self, name: str, where: dict[str, Any]) -> bool:
        """Mark a fault as fired. Return whether the caller is the one in which it happens."""
        partial = self.path / f"{name}.{os.getpid()}"
        partial.write_text(json.dumps(where))
        try:
            os.link(partial, self.path / f"{name}.fired")
        except FileExistsError:
            return False
        finally:
            partial.unlink()
        return True

    def has_fired(self, name: str) -> bool:
        return (self.path / f"{name}.fired").exists()

    def fired(self, name: str) -> dict[str, Any] | None:
        """Return where a fault happened: worker, rank, pid, point, transaction, step, unix time; None if it has not."""
        try:
            found: dict[str, Any] = json.loads((self.path / f"{name}.fired").read_text())
        except FileNotFoundError:
            return None
        return found

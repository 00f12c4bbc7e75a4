"""The log of a run: one file of JSON lines that all processes of a job append to, and that the comparison reads as it grows.

A line is one `write` in append mode, so lines of several processes do not mix. It is written before the process goes on; a process that is
killed leaves whole lines only. Times are those of the system's clock (`time.time`), the same for all processes of a machine.

| what | when |
|---|---|
| ready | the worker can train: model, optimizer and groups are there |
| begin | it starts an attempt at `step` (counted from 1) |
| commit | `step` is applied to its parameters; `world` ranks had a part in it |
| final | it has finished; `digest` is the SHA-256 of its parameters |
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    what: str
    rank: int
    step: int
    world: int
    time: float  # seconds since the epoch
    pid: int
    digest: str = ""


class Writer:
    """Append to the log, for one process."""

    def __init__(self, path: Path, world: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.world = world

    def write(self, what: str, rank: int, step: int, *, world: int | None = None, digest: str = "") -> None:
        line = Line(what, rank, step, self.world if world is None else world, time.time(), os.getpid(), digest)
        os.write(self._fd, json.dumps(asdict(line)).encode() + b"\n")


def parse(text: bytes) -> list[Line]:
    """Return the complete lines of `text`; text after the last line end is left out."""
    whole = text[: text.rfind(b"\n") + 1]
    return [Line(**json.loads(line)) for line in whole.splitlines()]


class Reader:
    """Read the log, for the observer: `lines` has all that were there at the last `refresh`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self._read = 0  # bytes

    def refresh(self) -> list[Line]:
        """Read on. Return the new lines only."""
        if not self.path.exists() or self.path.stat().st_size == self._read:
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        new = parse(text)
        self._read += text.rfind(b"\n") + 1
        self.lines += new
        return new

    def committed(self, ranks: int) -> int:
        """Return the last step that every rank has committed at some time, 0 before the first."""
        last = [0] * ranks
        for line in self.lines:
            if line.what == "commit":
                last[line.rank] = max(last[line.rank], line.step)
        return min(last)

    def holder(self, rank: int) -> int | None:
        """Return the pid of the process that committed last as `rank`."""
        return next((line.pid for line in reversed(self.lines) if line.what == "commit" and line.rank == rank), None)

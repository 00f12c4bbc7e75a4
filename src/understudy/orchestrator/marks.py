"""Operators' decisions about the nodes of a service, for all its jobs and future ones: drained, tainted, or trusted again.

They are kept in a file alongside the journal, so that they also apply to a node without any job, and after a restart of the service. Known
limit: several orchestrators without a shared `--state-dir` each have a separate file; one that takes over knows only what its jobs know,
and nothing about nodes without a job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from understudy.messages import service_jobs
from understudy.orchestrator.database import set_aside

FILE = "nodes.json"
EARLIER = "drained.json"  # from earlier versions: drained nodes, and why


@dataclass
class _Kept:
    """The marks by node. `trusted`: unix times."""

    drained: dict[str, str] = field(default_factory=dict)
    tainted: dict[str, str] = field(default_factory=dict)
    trusted: dict[str, float] = field(default_factory=dict)


_KEPT = TypeAdapter(_Kept)
_EARLIER = TypeAdapter(dict[str, str])


class NodeMarks:
    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        """Read the file. `tell` prints a line for the user."""
        self._file = folder / FILE
        self._tell = tell
        self._kept = _Kept()
        self.is_new = not self._file.exists()  # no version that records when nodes were trusted has written it
        read = folder / EARLIER if self.is_new and (folder / EARLIER).exists() else self._file
        try:
            if read == self._file:
                self._kept = _KEPT.validate_json(read.read_bytes())
            else:
                self._kept.drained = _EARLIER.validate_json(read.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            self._set_aside(read, str(error))

    def _set_aside(self, damaged: Path, reason: str) -> None:
        """Keep an unreadable file, which the next mark would replace."""
        try:
            kept = set_aside(damaged)
        except OSError:  # then nothing can be written there either
            kept = damaged
        self._tell(service_jobs.MARKS_UNREADABLE(path=damaged, kept=kept, reason=reason))
        self.is_new = True
        if kept != damaged:
            self._write()  # otherwise the next start would read the file of an earlier version

    def why(self, node: str) -> str:
        """Return why operators keep new jobs from the node; "" if they do not."""
        return self._kept.drained.get(node) or self._kept.tainted.get(node, "")

    def is_drained(self, node: str) -> bool:
        return node in self._kept.drained

    def is_known(self, node: str) -> bool:
        """Return whether there is a mark of the node that may be taken back."""
        return bool(self.why(node))

    def trusted_at(self, node: str) -> float:
        """Return the unix time at which an operator last marked the node as trusted; 0: never."""
        return self._kept.trusted.get(node, 0.0)

    def drain(self, node: str, reason: str) -> None:
        self._kept.drained[node] = service_jobs.NODE_DRAINED(reason=reason)
        self._write()

    def undrain(self, node: str) -> None:
        self._kept.drained.pop(node, None)
        self._write()

    def taint(self, node: str, reason: str) -> None:
        self._kept.tainted[node] = service_jobs.NODE_TAINTED(reason=reason)
        self._write()

    def trust(self, node: str, now: float) -> None:
        """End the taint and the drain of a node. `now`: unix time."""
        self._kept.drained.pop(node, None)
        self._kept.tainted.pop(node, None)
        self._kept.trusted[node] = now
        self._write()

    def recall(self, trusted: Mapping[str, float]) -> None:
        """Take over the journal's times at which operators trusted nodes (unix times), for a new file."""
        if self.is_new and trusted:
            self._kept.trusted = {node: max(then, self.trusted_at(node)) for node, then in trusted.items()}
            self._write()

    def _write(self) -> None:
        unfinished = self._file.with_name(f".{FILE}.{os.getpid()}")
        try:
            unfinished.write_bytes(_KEPT.dump_json(self._kept) + b"\n")
            unfinished.rename(self._file)
        except OSError as error:
            self._tell(service_jobs.MARKS_UNWRITTEN(path=self._file, reason=str(error)))

"""The position in the job's journal that an orchestrator last reported to this agent (`orchestrator/chain.py`).

It is kept in a file, because the workers here may outlive this agent. It is needed only while there are workers.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from understudy.links.messages import NO_POSITION, POSITION, Journalled

FILE = "journal-position"
_FORM = re.compile(r"\d{1,15}-[0-9a-f]{16}(-[0-9a-f]{16})?", re.ASCII)


class JournalPosition:
    def __init__(self, run_dir: Path, serves: Callable[[], bool]) -> None:
        """Create the position. `serves`: whether the agent has live workers."""
        self._serves = serves
        self._file = run_dir / FILE
        self._known = NO_POSITION

    def take_up(self) -> None:
        """Read the position of an earlier agent, whose workers are here."""
        with contextlib.suppress(OSError, ValueError):
            self._set(self._file.read_text())

    def report(self, reported: Journalled) -> None:
        """Store the position, before anything that depends on it is done."""
        if not self._set(reported.position):
            return
        unfinished = self._file.with_name(f".{FILE}.{os.getpid()}")
        with contextlib.suppress(OSError):  # no space: this agent knows it anyway
            unfinished.write_text(self._known)
            unfinished.rename(self._file)

    def header(self) -> dict[str, str]:
        """Return the header for requests to an orchestrator."""
        return {POSITION: self._known if self._serves() else NO_POSITION}

    def _set(self, text: str) -> bool:
        fits = _FORM.fullmatch(text) is not None
        self._known = text if fits else self._known
        return fits

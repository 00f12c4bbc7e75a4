"""How far the job's journal was when an orchestrator last reported it to this agent (`orchestrator/chain.py`).

Kept in a file, because the workers here may outlive this agent. Only while there are any does something depend on it.
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
        """`serves`: whether the agent has live workers."""
        self._serves = serves
        self._file = run_dir / FILE
        self._known = NO_POSITION

    def take_up(self) -> None:
        """Read what an earlier agent has kept, whose workers are here."""
        with contextlib.suppress(OSError, ValueError):
            self._set(self._file.read_text())

    def report(self, reported: Journalled) -> None:
        """Keep it, before anything that depends on it is done."""
        if not self._set(reported.position):
            return
        unfinished = self._file.with_name(f".{FILE}.{os.getpid()}")
        with contextlib.suppress(OSError):  # no room: this agent knows it all the same
            unfinished.write_text(self._known)
            unfinished.rename(self._file)

    def header(self) -> dict[str, str]:
        """Return what is shown to an orchestrator."""
        return {POSITION: self._known if self._serves() else NO_POSITION}

    def _set(self, text: str) -> bool:
        fits = _FORM.fullmatch(text) is not None
        self._known = text if fits else self._known
        return fits

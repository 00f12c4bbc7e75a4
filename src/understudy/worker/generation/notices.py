"""Reports to the user, each of them once."""

from __future__ import annotations

import re

from understudy.core.events import Notice
from understudy.messages.base import code_of
from understudy.worker.process.control import Control


class Notices:
    def __init__(self, control: Control, rank: int) -> None:
        self._control = control
        self._rank = rank
        self._shown: set[str] = set()

    def tell(self, text: str, everyone: bool = True) -> None:
        """Report `text` once. `everyone`: every rank reports it, and not only rank 0."""
        code = code_of(text)
        key = code + re.sub(r"[0-9]+", "", text.removeprefix(f"{code}: "))[:60]
        if key not in self._shown and (everyone or self._rank == 0):
            self._shown.add(key)
            self._control.send(Notice(self._control.worker, self._rank, text))

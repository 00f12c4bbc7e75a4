"""Names of the script that are bound to another object than at the last look: cheap enough for every vote.

A walk looks at everything, and so is rare. A name that is bound to another value for the first time between two walks would be in no
copy that the rank hands over until then. So at each vote the names of modules, classes and closures are compared by identity, and the
locals of frames in which something is known to change: to read those of others would keep them alive.

Known limits: a change inside an object that stays the same one is seen by the next walk only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from understudy.worker.census.leaves import FIXED
from understudy.worker.census.roots import CLASS, CLOSURE, MODULE, RootKey, Table
from understudy.worker.census.walk import Path

KINDS = frozenset({MODULE, CLASS, CLOSURE})  # whose names are all compared

REST = 1000  # times as long as a walk: walks take at most 0.1 % of the training time


class WalkBudget:
    """The time for walks: after one that took a second, the next one is due when `REST` seconds have passed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended, self._took = clock(), 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a walk."""
        began = self._clock()
        try:
            yield
        finally:
            self._ended = self._clock()
            self._took = self._ended - began

    def is_time(self) -> bool:
        """Return whether a walk now would keep all walks within their part of the training time."""
        return self._took > 0 and self._clock() - self._ended > REST * self._took


class Bindings:
    """What the names of each scope were bound to. Plain values are kept, of others the address, so that nothing is kept alive."""

    def __init__(self) -> None:
        self._seen: dict[RootKey, list[Any]] = {}

    def rebound(self, tables: Mapping[RootKey, Table]) -> Iterator[tuple[Path, Any]]:
        """Yield what is bound to another object than at the last call, of scopes that were there then."""
        for root, table in tables.items():
            names = table.items()
            now = [value if type(value) in FIXED else id(value) for value in names.values()]
            before = self._seen.get(root)
            if before == now:
                continue
            self._seen[root] = now
            if before is None:
                continue
            alike = len(before) == len(now)
            for number, (name, value) in enumerate(list(names.items())):
                if not name.startswith("__") and not (alike and before[number] == now[number]):
                    yield Path(root, name), value

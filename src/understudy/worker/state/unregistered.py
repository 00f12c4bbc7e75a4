"""The unregistered state of a rank, as the rest of its state sees it: values that appear and disappear (`census`).

The script has not asked for them, so they are never an obstacle: one that cannot be given, taken or compared is reported, and the job
goes on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from understudy.worker.encoding.codec import decode

PREFIX = "script:"  # of the entries


def is_unregistered(entry: str) -> bool:
    return entry.startswith(PREFIX)


def is_emptied(before: bytes, now: bytes) -> bool:
    """Return whether an unregistered value that was encoded twice is a container that has fewer items now. A changed value is no
    container.
    """
    if len(now) >= len(before):
        return False
    *_, held = decode(now)
    return isinstance(held, bytes) and isinstance(decode(held)[0], list | dict | set)


@dataclass(frozen=True)
class Item:
    """One unregistered thing, as it is shown to a person."""

    entry: str  # ""; it is not carried over
    name: str
    root: str  # the module, class or function where it is
    kind: str  # adopted (it is carried over), ignored, or in a word why it is not carried over
    size: int  # bytes that are carried over from this rank
    why: str = ""


class UnregisteredState(Protocol):
    top: dict[str, bytes]  # what had changed by the top of the iteration
    after: dict[str, bytes]  # ... and after the last transaction
    ends: list[dict[str, bytes]]  # ... and by the end of each loop of the job that is over
    left: dict[str, bytes]  # values that loops of the job have set and that are read after them, by LOOP:NAME

    @property
    def exact(self) -> bool:
        """Return whether `top` and `after` contain everything that had changed by then."""
        ...

    def set_up(self) -> None:
        """Record the values before a loop or transaction. From the first call on changes count."""
        ...

    def encoded(self, only: Container[str] | None, closely: bool) -> dict[str, bytes]:
        """Return the values that have changed since then, by entry: all of them if `closely`, else those found before."""
        ...

    def look_at_names(self) -> None:
        """Look, at a vote, for values that have changed for the first time."""
        ...

    def load(self, entry: str, data: bytes) -> None:
        """Set a value as it was encoded."""
        ...

    def is_set_by_a_loop(self, entry: str) -> bool:
        """Return whether it is a name that a loop of the script sets in each iteration."""
        ...

    def leave(self, entry: str) -> bool:
        """Report that an entry differs from rank to rank and changes after a vote. Returns whether it is left alone for that."""
        ...

    def note(self) -> Any:
        """Note the values at begin."""
        ...

    def uncovered(self, most: int) -> tuple[str, ...]:
        """Return the entries that are known to change and are not carried over, the first `most` by name."""
        ...

    def restore(self, noted: Any, values: Mapping[str, bytes]) -> None:
        """Restore the values in a redo. `values`: by entry, as of begin."""
        ...

    def join(self, top: dict[str, bytes], after: dict[str, bytes], transaction: int) -> None:
        """Take over, on a newcomer that is a rank from now on, what it would know if it had always been one, as of the next `transaction`
        of the job.
        """
        ...

    def at_top(self) -> None:
        """Record the top of an iteration of a loop of the job."""
        ...

    def committed(self) -> None:
        """Record the end of a transaction."""
        ...

    def at_end(self, loop: int) -> None:
        """Record the end of this loop of the job."""
        ...

    def transaction(self, function: Any) -> None:
        """Record that the script has made a transaction of this function."""
        ...

    def around(self, frame: FrameType | None) -> None:
        """Note the frame that contains a transaction whose code is a block of the script; None: it is over."""
        ...

    def ignore(self, names: Iterable[str]) -> None:
        """Ignore these names: they may be initial on a newcomer."""
        ...

    def news(self) -> list[str]:
        """Return the warnings: values that a newcomer would not have."""
        ...

    def listed(self, known: Iterable[str]) -> list[Item]:
        """Return all of it. `known`: entries that some rank has."""
        ...


class NoUnregisteredState:
    """Does nothing: for a process in which unregistered state is not tracked."""

    def __init__(self) -> None:
        self.top: dict[str, bytes] = {}
        self.after: dict[str, bytes] = {}
        self.ends: list[dict[str, bytes]] = []
        self.left: dict[str, bytes] = {}

    @property
    def exact(self) -> bool:
        return True

    def set_up(self) -> None:
        pass

    def encoded(self, only: Container[str] | None, closely: bool) -> dict[str, bytes]:
        return {}

    def look_at_names(self) -> None:
        pass

    def load(self, entry: str, data: bytes) -> None:
        pass

    def is_set_by_a_loop(self, entry: str) -> bool:
        return False

    def leave(self, entry: str) -> bool:
        return False

    def uncovered(self, most: int) -> tuple[str, ...]:
        return ()

    def note(self) -> Any:
        return None

    def restore(self, noted: Any, values: Mapping[str, bytes]) -> None:
        pass

    def join(self, top: dict[str, bytes], after: dict[str, bytes], transaction: int) -> None:
        pass

    def at_top(self) -> None:
        pass

    def committed(self) -> None:
        pass

    def at_end(self, loop: int) -> None:
        pass

    def transaction(self, function: Any) -> None:
        pass

    def around(self, frame: FrameType | None) -> None:
        pass

    def ignore(self, names: Iterable[str]) -> None:
        pass

    def news(self) -> list[str]:
        return []

    def listed(self, known: Iterable[str]) -> list[Item]:
        return []

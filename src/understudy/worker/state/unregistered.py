"""What a rank has beside what is registered, as the rest of its state sees it: values that come and go (`census`).

Nobody has asked for them, so they never stand in the way: one that cannot be given, taken or compared is told, and a job goes on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from understudy.worker.encoding.codec import decode

PREFIX = "script:"  # of the entries


def is_unregistered(entry: str) -> bool:
    return entry.startswith(PREFIX)


def is_emptied(before: bytes, now: bytes) -> bool:
    """Whether something unregistered that was encoded twice is a container that holds less now. What is changed is no container."""
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
    kind: str  # adopted (it is carried over), ignored, or why it is not carried over in a word
    size: int  # bytes, of what is carried over from this rank
    why: str = ""


class UnregisteredState(Protocol):
    top: dict[str, bytes]  # what had changed by the top of the iteration
    after: dict[str, bytes]  # ... and behind the last transaction
    ends: list[dict[str, bytes]]  # ... and by the end of each loop of the job that is over
    left: dict[str, bytes]  # what loops of the job have set and is read behind them, by LOOP:NAME

    @property
    def exact(self) -> bool:
        """Whether `top` and `after` hold all that had changed by then."""
        ...

    def set_up(self) -> None:
        """In front of the first loop or transaction, or of any later one: from the first time on counts what changes."""
        ...

    def encoded(self, only: Container[str] | None, closely: bool) -> dict[str, bytes]:
        """What has changed since then, by entry: all of it if `closely`, else what was found before."""
        ...

    def load(self, entry: str, data: bytes) -> None:
        """Sets one as it was encoded."""
        ...

    def leave(self, entry: str) -> bool:
        """It differs from rank to rank and changes behind a vote. Whether it is left alone for that."""
        ...

    def note(self) -> Any:
        """At begin."""
        ...

    def uncovered(self, most: int) -> tuple[str, ...]:
        """What is known to change and is not carried over, the first by name."""
        ...

    def restore(self, noted: Any, values: Mapping[str, bytes]) -> None:
        """In a redo. `values`: by entry, what there was at begin."""
        ...

    def join(self, top: dict[str, bytes], after: dict[str, bytes], transaction: int) -> None:
        """On a newcomer that is a rank from now on: what it would know if it had been one, as of the next `transaction` of the job."""
        ...

    def at_top(self) -> None:
        """Of an iteration of a loop of the job."""
        ...

    def committed(self) -> None:
        """A transaction is over."""
        ...

    def at_end(self, loop: int) -> None:
        """This loop of the job is left."""
        ...

    def transaction(self, function: Any) -> None:
        """The script has made one of this function."""
        ...

    def ignore(self, names: Iterable[str]) -> None:
        """These may start afresh."""
        ...

    def news(self) -> list[str]:
        """What is to be told: what a newcomer would not have."""
        ...

    def listed(self, known: Iterable[str]) -> list[Item]:
        """All of it. `known`: entries that some rank has."""
        ...


class NoUnregisteredState:
    """Where nobody looks."""

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

    def load(self, entry: str, data: bytes) -> None:
        pass

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

    def ignore(self, names: Iterable[str]) -> None:
        pass

    def news(self) -> list[str]:
        return []

    def listed(self, known: Iterable[str]) -> list[Item]:
        return []

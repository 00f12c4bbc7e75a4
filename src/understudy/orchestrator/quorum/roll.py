"""Who the members are: each has an identity, which is as old as its disk, and all have the same list of them, the *roll*.

A member that has lost its disk has forgotten how it voted and what it has acknowledged. If it voted again, it could help to elect a leader
that lacks what a majority had written. So only those on the roll take part, and the first member alone makes the roll, once: when
every other one has told it that it has none. One that comes back with an empty disk has a new identity and is a *stranger*: it finds that
the others have a roll without it, and neither votes nor counts. If the first member itself comes back so, it cannot make another roll:
whoever leads was elected by a majority of a roll, so at least one more has it, and says so.
(All must be there for the roll to be made. So they must be for the job: it begins when all its nodes are there.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hello:
    """What members say to each other before anything else, and again when it has changed."""

    member: int
    identity: str
    roll: tuple[str, ...]  # identities by number; empty: it has none


class Roll:
    def __init__(self, number: int, size: int, identity: str, names: tuple[str, ...] = ()) -> None:
        self.number = number
        self.identity = identity
        self.names = names
        self.stranger = False
        self._size = size
        self._heard = {number: identity}

    def hello(self) -> Hello:
        return Hello(self.number, self.identity, self.names)

    def hear(self, hello: Hello) -> bool:
        """Whether the roll is known from now on, and was not before: it has to be on disk before anything more is said."""
        if self.names:
            return False
        if hello.roll:
            if self.knows(hello, hello.roll) and hello.roll[self.number] == self.identity:
                self.names = hello.roll
            else:
                self.stranger = True
        elif self.number == 0:
            self._heard[hello.member] = hello.identity
            if len(self._heard) == self._size:
                self.names = tuple(self._heard[number] for number in range(self._size))
        return bool(self.names)

    def accepts(self, hello: Hello) -> bool:
        """Whether both have the same roll, and the other one is on it."""
        return bool(self.names) and hello.roll == self.names and self.knows(hello, self.names)

    def refuses(self, hello: Hello) -> bool:
        """Whether it will never be accepted."""
        return bool(self.names) and (not self.knows(hello, self.names) or hello.roll not in ((), self.names))

    def knows(self, hello: Hello, names: tuple[str, ...]) -> bool:
        return len(names) == self._size and names[hello.member] == hello.identity

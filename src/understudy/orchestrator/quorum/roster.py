"""Who the members are: each has an identity, which is as old as its disk, and all have the same list of them, the *roster*.

A member that has lost its disk has forgotten how it voted and what it has acknowledged. If it voted again, it could help to elect a leader
that lacks what a majority had written. So only those on the roster take part, and the first member alone makes the roster, once: when
every other one has told it that it has none. One that comes back with an empty disk has a new identity and is a *non-member*: it finds that
the others have a roster without it, and neither votes nor counts. If the first member itself comes back so, it cannot make another roster:
whoever leads was elected by a majority of a roster, so at least one more has it, and says so.
(All must be there for the roster to be made. So they must be for the job: it begins when all its nodes are there.)
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.orchestrator.quorum.memory import Acknowledged


@dataclass(frozen=True)
class MemberHello:
    """What members say to each other before anything else, and again when it has changed."""

    member: int
    identity: str
    roster: tuple[str, ...]  # identities by number; empty: it has none
    acknowledged: Acknowledged | None = None  # what is known here of the one to which this is said; None: its version is older
    forgot: bool = False  # it takes no part any more: it lacks what it has had, or others do


class Roster:
    def __init__(self, number: int, size: int, identity: str, names: tuple[str, ...] = ()) -> None:
        self.number = number
        self.identity = identity
        self.names = names
        self.non_member = False
        self._size = size
        self._heard = {number: identity}

    def hello(self) -> MemberHello:
        return MemberHello(self.number, self.identity, self.names)

    def hear(self, hello: MemberHello) -> bool:
        """Whether the roster is known from now on, and was not before: it has to be on disk before anything more is said."""
        if self.names:
            return False
        if hello.roster:
            if self.knows(hello, hello.roster) and hello.roster[self.number] == self.identity:
                self.names = hello.roster
            else:
                self.non_member = True
        elif self.number == 0:
            self._heard[hello.member] = hello.identity
            if len(self._heard) == self._size:
                self.names = tuple(self._heard[number] for number in range(self._size))
        return bool(self.names)

    def accepts(self, hello: MemberHello) -> bool:
        """Whether both have the same roster, and the other one is on it. (Not whether it has forgotten anything: `memory`.)"""
        return bool(self.names) and hello.roster == self.names and self.knows(hello, self.names)

    def refuses(self, hello: MemberHello) -> bool:
        """Whether it will never be accepted."""
        return bool(self.names) and (not self.knows(hello, self.names) or hello.roster not in ((), self.names))

    def knows(self, hello: MemberHello, names: tuple[str, ...]) -> bool:
        return len(names) == self._size and names[hello.member] == hello.identity

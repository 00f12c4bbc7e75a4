"""The identities of the members: each is as old as the member's disk, and all members have the same list of them, the *roster*.

A member that has lost its disk has forgotten its votes and its acknowledgements. If it voted again, it could help to elect a leader that
lacks entries that a majority had written. So only members on the roster take part, and only the first member makes the roster, once: when
every other one has reported that it has none. A member that comes back with an empty disk has a new identity and is a *non-member*: it
finds that the others have a roster without it, and neither votes nor counts. If the first member comes back like this, it cannot make
another roster: the leader was elected by a majority of a roster, so at least one more member has it, and reports it.

All members must be available for the roster to be made. The job needs this as well: it begins when all its nodes have joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.orchestrator.quorum.memory import Acknowledged


@dataclass(frozen=True)
class MemberHello:
    """The first message between members, repeated when it has changed."""

    member: int
    identity: str
    roster: tuple[str, ...]  # identities by number; empty: it has none
    acknowledged: Acknowledged | None = None  # what the sender knows of the receiver; None: the sender's version is older
    forgot: bool = False  # it takes no part any more: it lacks entries that it has had, or others do


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
        """Return whether the roster has become known: it must be on disk before anything else is sent."""
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
        """Return whether both have the same roster, and the other one is on it. (Whether it has forgotten anything: `memory`.)"""
        return bool(self.names) and hello.roster == self.names and self.knows(hello, self.names)

    def refuses(self, hello: MemberHello) -> bool:
        """Return whether it will never be accepted."""
        return bool(self.names) and (not self.knows(hello, self.names) or hello.roster not in ((), self.names))

    def knows(self, hello: MemberHello, names: tuple[str, ...]) -> bool:
        return len(names) == self._size and names[hello.member] == hello.identity

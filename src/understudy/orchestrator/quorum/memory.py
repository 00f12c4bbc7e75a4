"""What each member is known to have had on its disk, so that one whose disk was put back to an older state is found. Pure.

Raft trusts that a member which comes back knows what it has said. One that was restored from an older copy (a snapshot of its host or its
volume) has the right identity, but has forgotten entries that it has acknowledged, and votes; with its help a leader could be elected
that lacks what a majority had. So every member keeps, of every other one, a lower bound of what that has had, and tells it when they meet,
before anything else. One that finds that it has had more than it has takes no part from then on, also after another start, and says so.

- *Acknowledged*: a member has written its term before it says anything in it, and its log was the leader's up to `last` when it said so. As
  long as it is in that term, only that leader changes its log, and only behind `last`; what it has in a later term is younger.
  So a member lacks something if its term is lower, or if it is the same and its entry `last` is missing or another one.
- *Committed*: of these entries, those that are committed never go away, in whatever term.

Both hold for whatever a member that never forgot has at any time, so a bound that is out of date accuses nobody. Each member learns from
what it hears, and the one that leads tells the others, with its signs of life, what it knows of all. The bounds go to the disk with what is
written anyway, and not by themselves: a member that is started again knows what it knew when it last wrote something.

Not found is what no member knows that is there: one that is restored while all that know better are away (the leader of that time, with
the others cut off from it), or a majority that is restored at once. Then words may be lost that a majority had. When a member comes back
that has them, this is found: what it knows to be committed is not what the leader has (`Contradicted` in `raft`), so it takes no part,
and neither do those of which it knows that they had it. Without a majority nothing is decided any more, and training goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from understudy.orchestrator.quorum.raft import AppendEntries, Entry, Raft, RaftMessage, RequestVote, Role, Vote


@dataclass(frozen=True)
class Acknowledged:
    """What a member has had: in `term` its entry `last` was of `last_term`; entry `committed`, of `committed_term`, is there to stay."""

    term: int = 0
    last: int = 0
    last_term: int = 0
    committed: int = 0
    committed_term: int = 0

    def with_more(self, other: Acknowledged) -> Acknowledged:
        """Both."""
        found = self if (self.term, self.last) >= (other.term, other.last) else other
        known = self if self.committed >= other.committed else other
        return replace(found, committed=known.committed, committed_term=known.committed_term)

    def lacking(self, term: int, log: Sequence[Entry]) -> bool:
        """Whether one that has this has forgotten something."""
        if term < self.term or (term == self.term and not _has(log, self.last, self.last_term)):
            return True
        return not _has(log, self.committed, self.committed_term)


NOTHING = Acknowledged()


def _has(log: Sequence[Entry], index: int, term: int) -> bool:
    return index == 0 or (0 < index <= len(log) and log[index - 1].term == term)


@dataclass(frozen=True)
class Known:
    """From the one that leads: what it knows of each member, by number."""

    members: tuple[Acknowledged, ...]


class Memory:
    """One member's, of all of them. Of itself it keeps what is committed."""

    def __init__(self, number: int, size: int, known: Mapping[int, Acknowledged]) -> None:
        self._number = number
        self._of = [known.get(member, NOTHING) for member in range(size)]
        self._written = list(self._of)

    def of(self, member: int) -> Acknowledged:
        return self._of[member]

    def note(self, member: int, more: Acknowledged) -> None:
        self._of[member] = self._of[member].with_more(more)

    def hear(self, sender: int, message: RaftMessage, raft: Raft) -> None:
        """A message that `raft` has just received."""
        if isinstance(message, RequestVote | Vote) and message.pre_vote:
            return  # that names a term in which it is not
        found = Acknowledged(message.term)
        if isinstance(message, AppendEntries) and message.term == raft.term and raft.leader == sender:
            last = message.before + len(message.entries)
            last_term = message.entries[-1].term if message.entries else message.before_term
            found = Acknowledged(message.term, last, last_term, raft.committed, raft.term_of(raft.committed))
        self.note(sender, found)

    def look(self, raft: Raft) -> None:
        """What has become of it: after every turn."""
        if raft.role is Role.LEADER:
            for member, last in raft.matched().items():
                committed = min(last, raft.committed)
                self.note(member, Acknowledged(raft.term, last, raft.term_of(last), committed, raft.term_of(committed)))
        self.note(self._number, Acknowledged(committed=raft.committed, committed_term=raft.term_of(raft.committed)))

    def told(self, known: Known) -> None:
        """By the one that leads."""
        if len(known.members) == len(self._of):
            for member, more in enumerate(known.members):
                if member != self._number:
                    self.note(member, more)

    def known(self) -> Known:
        return Known(tuple(self._of))

    def to_write(self) -> dict[int, Acknowledged]:
        """What is not on the disk yet, by member."""
        return {member: now for member, (now, then) in enumerate(zip(self._of, self._written, strict=True)) if now != then}

    def written(self, rows: Mapping[int, Acknowledged]) -> None:
        for member, row in rows.items():
            self._written[member] = row

"""Lower bounds of what each member has had on its disk, so that one with a restored older disk is detected. Pure.

Raft assumes that a member which comes back remembers its messages. One that was restored from an older copy (a snapshot of its host or its
volume) has the right identity, but has forgotten entries that it has acknowledged, and votes; with its help a leader could be elected that
lacks what a majority had. So every member keeps, for every other one, a lower bound of what that has had, and sends it when they meet,
before anything else. A member that finds that it has had more than it has takes no part from then on, also after a restart, and reports it.

- *Acknowledged*: a member writes its term before it sends anything in it, and its log was the leader's up to `last` when it acknowledged
  that. As long as it is in that term, only that leader changes its log, and only after `last`; entries of a later term are younger. So a
  member lacks something if its term is lower, or if it is the same and its entry `last` is missing or different.
- *Committed*: of these entries, those that are committed never disappear, in any term.

Both hold at any time for a member that never forgot, so an outdated bound accuses no member. Each member learns from the messages that it
receives, and the leader sends the others, with its heartbeats, what it knows of all. The bounds are written to the disk together with other
data, not separately: after a restart, a member knows what it knew when it last wrote something.

Not detected is what no available member knows: one member is restored while all that know better are away (the leader of that time, with
the others cut off from it), or a majority is restored at once. Then entries that a majority had may be lost. When a member comes back that
has them, this is detected: an entry that it knows to be committed differs from the leader's (`Contradicted` in `raft`), so it takes no
part, and neither do those that it knows had the entry. Without a majority nothing is decided any more, and training goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from understudy.orchestrator.quorum.raft import AppendEntries, Entry, Raft, RaftMessage, RequestVote, Role, Vote


@dataclass(frozen=True)
class Acknowledged:
    """What a member has had: in `term`, its entry `last` was of `last_term`; entry `committed`, of `committed_term`, is final."""

    term: int = 0
    last: int = 0
    last_term: int = 0
    committed: int = 0
    committed_term: int = 0

    def with_more(self, other: Acknowledged) -> Acknowledged:
        """Return the combination of both."""
        found = self if (self.term, self.last) >= (other.term, other.last) else other
        known = self if self.committed >= other.committed else other
        return replace(found, committed=known.committed, committed_term=known.committed_term)

    def lacking(self, term: int, log: Sequence[Entry]) -> bool:
        """Return whether a member with this term and log has forgotten something."""
        if term < self.term or (term == self.term and not _has(log, self.last, self.last_term)):
            return True
        return not _has(log, self.committed, self.committed_term)


NOTHING = Acknowledged()


def _has(log: Sequence[Entry], index: int, term: int) -> bool:
    return index == 0 or (0 < index <= len(log) and log[index - 1].term == term)


@dataclass(frozen=True)
class Known:
    """From the leader: what it knows of each member, by number."""

    members: tuple[Acknowledged, ...]


class Memory:
    """One member's knowledge of all members. For itself it keeps the committed entries."""

    def __init__(self, number: int, size: int, known: Mapping[int, Acknowledged]) -> None:
        self._number = number
        self._of = [known.get(member, NOTHING) for member in range(size)]
        self._written = list(self._of)

    def of(self, member: int) -> Acknowledged:
        return self._of[member]

    def note(self, member: int, more: Acknowledged) -> None:
        self._of[member] = self._of[member].with_more(more)

    def hear(self, sender: int, message: RaftMessage, raft: Raft) -> None:
        """Learn from a message that `raft` has just received."""
        if isinstance(message, RequestVote | Vote) and message.pre_vote:
            return  # it names a term in which it is not
        found = Acknowledged(message.term)
        if isinstance(message, AppendEntries) and message.term == raft.term and raft.leader == sender:
            last = message.before + len(message.entries)
            last_term = message.entries[-1].term if message.entries else message.before_term
            found = Acknowledged(message.term, last, last_term, raft.committed, raft.term_of(raft.committed))
        self.note(sender, found)

    def look(self, raft: Raft) -> None:
        """Record the state of `raft`, after every turn."""
        if raft.role is Role.LEADER:
            for member, last in raft.matched().items():
                committed = min(last, raft.committed)
                self.note(member, Acknowledged(raft.term, last, raft.term_of(last), committed, raft.term_of(committed)))
        self.note(self._number, Acknowledged(committed=raft.committed, committed_term=raft.term_of(raft.committed)))

    def learn(self, known: Known) -> None:
        """Learn from the leader's knowledge."""
        if len(known.members) == len(self._of):
            for member, more in enumerate(known.members):
                if member != self._number:
                    self.note(member, more)

    def known(self) -> Known:
        return Known(tuple(self._of))

    def to_write(self) -> dict[int, Acknowledged]:
        """Return the entries that are not on the disk yet, by member."""
        return {member: now for member, (now, then) in enumerate(zip(self._of, self._written, strict=True)) if now != then}

    def written(self, rows: Mapping[int, Acknowledged]) -> None:
        for member, row in rows.items():
            self._written[member] = row

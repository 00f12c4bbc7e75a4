"""Raft: elect a leader, and decide which entries of the log are committed. Messages and the time go in, messages come out.

Theory
======

D. Ongaro and J. Ousterhout, "In Search of an Understandable Consensus Algorithm", USENIX ATC 2014 (sections below are of the extended
version), and, where noted, D. Ongaro's dissertation "Consensus: Bridging Theory and Practice", Stanford 2014.

- A *term* has at most one leader: each member votes once in a term, keeps that on disk, and a leader has the votes of a majority (5.2).
- A member votes only for a candidate whose log is at least as up to date as its own: a later last term, or the same and no shorter (5.4.1).
- A leader only appends to its own log. The others accept an entry only after the one before it (same index, same term); entries that differ
  are cut off and replaced by the leader's (5.3).
- An entry is *committed* when a majority has it on disk and it, or a later one, is of the leader's own term (5.4.2). A new leader begins
  with an entry without content, so that it need not wait for one (8).
- Before it raises its term a member asks whether it would be elected (*pre-vote*: PreVote, dissertation 9.6), so a member that was cut off
  does not depose a leader when it comes back.
- A member that has heard from a leader within `ELECTION` takes no part in elections (6, dissertation 4.2.3). So a leader that a majority
  has answered within `LEASE` knows that there is no other (dissertation 6.4.1); otherwise it steps down. The clocks only need to run at
  about the same rate. A member that was restarted does not know which leader it has heard, and counts as having heard one just then.

Rules for callers
=================

After every call, `ready` returns what must be done: first write the hard state (term and vote) and the entries to disk durably, then send
the messages. Messages may be lost, repeated or reordered. `now` is a clock that never goes back, also while the process is stopped; it need
not agree with any other clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

HEARTBEAT = 0.4  # seconds between two messages of a leader to each other member
ELECTION = 2.0  # seconds without a leader before a member stands for election
SPREAD = 1.5  # an election's time is drawn from ELECTION to ELECTION + SPREAD, so that two rarely start at once
LEASE = 1.8  # seconds for which an answer is valid: less than ELECTION by far more than clocks drift in that time
BATCH = 1 << 18  # characters of entries in one message, or one longer entry
NEVER = float("-inf")


class Contradicted(AssertionError):
    """A leader has other entries than those that are committed here: too many members have forgotten entries."""


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asks whether it would be elected
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True)
class Entry:
    term: int
    text: str  # empty: a leader's first


@dataclass(frozen=True)
class RequestVote:
    """`last`: the index of the candidate's last entry, 0 if it has none; its term is `last_term`."""

    term: int
    last: int
    last_term: int
    pre_vote: bool


@dataclass(frozen=True)
class Vote:
    term: int
    granted: bool
    pre_vote: bool


@dataclass(frozen=True)
class AppendEntries:
    """`entries` follow the one with index `before`. `sent`: by the leader's clock."""

    term: int
    before: int
    before_term: int
    entries: tuple[Entry, ...]
    committed: int
    sent: float


@dataclass(frozen=True)
class AppendReply:
    """`last`: up to where the log is now the leader's; unless `ok`, an index after which it is not. `sent`: as received."""

    term: int
    ok: bool
    last: int
    sent: float


RaftMessage = RequestVote | Vote | AppendEntries | AppendReply


@dataclass(frozen=True)
class Step:
    """What must be done, in this order.

    `hard_state`: (term, vote) if it has changed. The log on disk is cut off after its first `keep` entries, and `entries` are appended.
    Then the messages are sent, each to a member.
    """

    hard_state: tuple[int, int] | None
    keep: int
    entries: tuple[Entry, ...]
    messages: tuple[tuple[int, RaftMessage], ...]

    @property
    def writes(self) -> bool:
        return self.hard_state is not None or bool(self.entries)


class Raft:
    def __init__(
        self,
        number: int,
        size: int,
        now: float,
        draw: Callable[[], float],
        hard_state: tuple[int, int] = (0, -1),
        log: Iterable[Entry] = (),
    ) -> None:
        """Create member `number` of `size`. `draw`: returns 0 to 1. `hard_state` (term, vote or -1) and `log`: as they are on disk."""
        self.number = number
        self.others = [other for other in range(size) if other != number]
        self.majority = size // 2 + 1
        self.term, self.vote = hard_state
        self.log = list(log)
        self.committed = 0
        self.floor = 0  # committed before this start, as far as known
        self.role = Role.FOLLOWER
        self.leader: int | None = None
        self.heard = now if self.term else NEVER  # when a leader was last heard
        self._draw = draw
        self._since = now  # the begin of the wait for an election
        # The first election of all is the first member's, at once: no member can have heard of a leader. All were available a moment
        # ago, so the others give it much time.
        self._wait = ELECTION + SPREAD * draw() if self.term else number * 2 * ELECTION
        self._votes: set[int] = set()
        self._next: dict[int, int] = {}  # as leader: the index of the first entry that each other member may lack
        self._match: dict[int, int] = {}  # ... and of the last one that it is known to have
        self._answered: dict[int, float] = {}  # send times of the latest messages that were answered
        self._asked: dict[int, float] = {}  # send times of the messages whose answers are due
        self._begun = 0  # the index of the first entry of its own term
        self._elected = self._beat = NEVER
        self._on_disk = self.term, self.vote
        self._keep = len(self.log)
        self._out: list[tuple[int, RaftMessage]] = []

    # -- what it knows ------------------------------------------------------------------------------------------------

    def leads(self) -> bool:
        """Return whether this member was elected, and has committed everything that was ever committed."""
        return self.role is Role.LEADER and self.committed >= self._begun

    def good_until(self) -> float:
        """As leader: return the time until which there can be no other."""
        answered = sorted(self._answered.values(), reverse=True)
        return answered[self.majority - 2] + LEASE  # it needs no answer of itself

    def matched(self) -> dict[int, int]:
        """As leader: return the index up to which each other member is known to have the log; not those that are not known yet."""
        return {other: last for other, last in self._match.items() if last}

    def discount(self, other: int) -> None:
        """Count a member for nothing that is not committed yet, because it has forgotten what it had."""
        if other in self._match:
            self._match[other] = 0

    def known_by(self, since: float) -> bool:
        """Return whether every other member has answered a message that was sent after `since`."""
        return all(answered > since for answered in self._answered.values())

    def ready(self) -> Step:
        """Return what must be done because of the calls since the last time."""
        hard_state = (self.term, self.vote) if (self.term, self.vote) != self._on_disk else None
        step = Step(hard_state, self._keep, tuple(self.log[self._keep :]), tuple(self._out))
        self._on_disk, self._keep, self._out = (self.term, self.vote), len(self.log), []
        return step

    # -- what happens -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Advance the time."""
        if self.role is Role.LEADER:
            if now > max(self._elected + LEASE, self.good_until()):
                self._follow(self.term, None, now)
            elif now >= self._beat + HEARTBEAT:
                self._beat = now
                for other in self.others:
                    self._send(other, now)
        elif now >= self._since + self._wait:
            self.campaign(now)

    def campaign(self, now: float) -> None:
        """Stand for election, if others answer that this member would be elected."""
        self.role, self.leader, self._votes = Role.PRE_CANDIDATE, None, {self.number}
        self._rest(now)
        self._tell_all(RequestVote(self.term + 1, len(self.log), self._last_term(), pre_vote=True))

    def propose(self, texts: Iterable[str], now: float) -> None:
        """As leader: append new entries."""
        assert self.role is Role.LEADER
        self.log += (Entry(self.term, text) for text in texts)
        for other in self.others:
            if other not in self._asked:
                self._send(other, now)

    def receive(self, sender: int, message: RaftMessage, now: float) -> None:
        match message:
            case RequestVote():
                self._asked_for_vote(sender, message, now)
            case Vote(pre_vote=True, granted=True):
                if self.role is Role.PRE_CANDIDATE and message.term == self.term + 1:
                    self._votes.add(sender)
                    if len(self._votes) >= self.majority:
                        self._be_candidate(now)
            case Vote():
                self._look_at_term(message.term, now)
                if message.granted and self.role is Role.CANDIDATE and message.term == self.term:
                    self._votes.add(sender)
                    if len(self._votes) >= self.majority:
                        self._lead(now)
            case AppendEntries():
                self._append(sender, message, now)
            case AppendReply():
                self._look_at_term(message.term, now)
                if self.role is Role.LEADER and message.term == self.term:
                    self._appended(sender, message, now)

    # -- elections ----------------------------------------------------------------------------------------------------

    def _asked_for_vote(self, sender: int, ask: RequestVote, now: float) -> None:
        followed = now < self.heard + ELECTION or (self.role is Role.LEADER and now <= self.good_until())
        current = (ask.last_term, ask.last) >= (self._last_term(), len(self.log))
        if ask.pre_vote:
            granted = not followed and current and ask.term > self.term
            self._tell(sender, Vote(ask.term if granted else self.term, granted, pre_vote=True))
            return
        if not followed:
            self._look_at_term(ask.term, now)
        granted = not followed and current and ask.term == self.term and self.vote in (-1, sender)
        if granted:
            self.vote = sender
            self._rest(now)
        self._tell(sender, Vote(self.term, granted, pre_vote=False))

    def _be_candidate(self, now: float) -> None:
        self.role, self.term, self.vote, self._votes = Role.CANDIDATE, self.term + 1, self.number, {self.number}
        self._rest(now)
        self._tell_all(RequestVote(self.term, len(self.log), self._last_term(), pre_vote=False))

    def _lead(self, now: float) -> None:
        self.role, self.leader = Role.LEADER, self.number
        self._next = dict.fromkeys(self.others, len(self.log) + 1)
        self._match = dict.fromkeys(self.others, 0)
        self._answered = dict.fromkeys(self.others, NEVER)
        self._asked = {}
        self._begun = len(self.log) + 1
        self._elected = self._beat = now
        self.propose([""], now)

    def _look_at_term(self, term: int, now: float) -> None:
        if term > self.term:
            self._follow(term, None, now)

    def _follow(self, term: int, leader: int | None, now: float) -> None:
        if term > self.term:
            self.term, self.vote = term, -1
        if self.role is not Role.FOLLOWER:
            self.role = Role.FOLLOWER
            self._rest(now)
        self.leader = leader

    def _rest(self, now: float) -> None:
        """Restart the wait for an election."""
        self._since, self._wait = now, ELECTION + SPREAD * self._draw()

    # -- replication --------------------------------------------------------------------------------------------------

    def _send(self, other: int, now: float) -> None:
        """Send a member the entries that it lacks; only a heartbeat while an answer is due, because the entries may be on the way."""
        before = self._next[other] - 1
        entries: list[Entry] = []
        size = 0
        if other not in self._asked:
            self._asked[other] = now
            for entry in self.log[before : before + 1000]:
                size += len(entry.text)
                if entries and size > BATCH:
                    break
                entries.append(entry)
        self._tell(other, AppendEntries(self.term, before, self.term_of(before), tuple(entries), self.committed, now))

    def _append(self, sender: int, message: AppendEntries, now: float) -> None:
        if message.term < self.term:
            self._tell(sender, AppendReply(self.term, False, 0, message.sent))
            return
        assert self.role is not Role.LEADER or message.term > self.term, "two leaders in one term"
        self._follow(message.term, sender, now)
        self.heard = now
        self._rest(now)
        before = message.before
        if before > len(self.log):
            self._tell(sender, AppendReply(self.term, False, len(self.log), message.sent))
            return
        if self.term_of(before) != message.before_term:
            wrong = self.term_of(before)
            while before > self.committed and self.term_of(before) == wrong:  # not one by one (5.3)
                before -= 1
            self._tell(sender, AppendReply(self.term, False, before, message.sent))
            return
        for index, entry in enumerate(message.entries, before + 1):
            if index <= len(self.log) and self.log[index - 1].term != entry.term:
                if index <= max(self.committed, self.floor):
                    raise Contradicted
                del self.log[index - 1 :]
                self._keep = min(self._keep, index - 1)
            if index > len(self.log):
                self.log.append(entry)
        last = before + len(message.entries)
        self.committed = max(self.committed, min(message.committed, last))
        self._tell(sender, AppendReply(self.term, True, last, message.sent))

    def _appended(self, sender: int, message: AppendReply, now: float) -> None:
        self._answered[sender] = max(self._answered[sender], message.sent)
        if message.sent >= self._asked.get(sender, NEVER):  # an answer to a later message means that the earlier one was lost
            self._asked.pop(sender, None)
        if message.ok:
            self._match[sender] = max(self._match[sender], message.last)
            self._next[sender] = max(self._next[sender], self._match[sender] + 1)
            self._commit()
        else:
            self._next[sender] = max(self._match[sender] + 1, min(self._next[sender], message.last + 1))
        if self._next[sender] <= len(self.log) and sender not in self._asked:
            self._send(sender, now)

    def _commit(self) -> None:
        index = sorted([len(self.log), *self._match.values()], reverse=True)[self.majority - 1]
        if index > self.committed and self.term_of(index) == self.term:
            self.committed = index

    # -- small things -------------------------------------------------------------------------------------------------

    def term_of(self, index: int) -> int:
        return self.log[index - 1].term if index else 0

    def _last_term(self) -> int:
        return self.term_of(len(self.log))

    def _tell(self, other: int, message: RaftMessage) -> None:
        self._out.append((other, message))

    def _tell_all(self, message: RaftMessage) -> None:
        for other in self.others:
            self._tell(other, message)

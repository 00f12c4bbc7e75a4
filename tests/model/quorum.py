"""Every order of events, within bounds, of the members of a quorum (`orchestrator/quorum/raft.py`).

Messages come in any order, any number of times, or never (none is ever taken away; one that is never received is lost). A member starts an
election at any time, without asking first whether it would be elected, and takes part in every election: time and pre-votes only make
fewer things possible. A restarted member knows the content of its disk.

After each event, as in Figure 3 of the paper (5.2 to 5.4): one leader in each term; logs that agree in an entry agree in all before it;
an entry that is committed anywhere stays, the same everywhere, on the disks of a majority; and a leader has all entries that were committed
in terms before its own.

A member's reaction to a message depends on nothing but the two, and there are far fewer members' states than states of the whole: members
and messages are numbered, each pair is tried once, and the network is a number whose bits are the messages. A state that differs from a
known one only by messages that it lacks can lead nowhere else, and is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from understudy.orchestrator.quorum.raft import NEVER, Entry, Raft, RaftMessage, Role

_Path = tuple[str, Any]  # what happened last, and the path before


class Violated(AssertionError):
    """What does not hold, and what led there."""


@dataclass(frozen=True)
class Bounds:
    terms: int
    entries: int = 0  # proposed ones, in addition to those with which terms begin
    restarts: int = 0
    standing: tuple[int, ...] = (0, 1)  # members that start elections
    size: int = 3


@dataclass(frozen=True)
class State:
    members: tuple[int, ...]
    committed: tuple[tuple[Entry, int], ...] = ()  # with the term in which it was
    leaders: tuple[tuple[int, int], ...] = ()  # of each term
    entries: int = 0
    restarts: int = 0


class Explorer:
    def __init__(self, bounds: Bounds, kind: type[Raft] = Raft) -> None:
        self._bounds = bounds
        self._kind = kind
        self._members: list[Raft] = []
        self._number_of: dict[object, int] = {}
        self._messages: list[tuple[int, int, RaftMessage]] = []  # to, from, what
        self._bit_of: dict[tuple[int, int, RaftMessage], int] = {}
        self._for: list[int] = [0] * bounds.size  # bits of the messages for each member
        self._tried: dict[tuple[int, object], tuple[int, int]] = {}
        self._logs_agree: dict[tuple[int, int], bool] = {}

    def run(self, most: int = 1 << 40) -> int:
        """How many states it has looked at, `most` at most. Raises `Violated`."""
        bounds = self._bounds
        first = State(tuple(self._intern(self._kind(number, bounds.size, 0.0, lambda: 0.0))[0] for number in range(bounds.size)))
        known: dict[State, list[int]] = {first: [0]}  # with the networks, none of which is a part of another
        waiting: list[tuple[State, int, _Path | None]] = [(first, 0, None)]
        looked = 0
        while waiting and looked < most:
            state, network, path = waiting.pop()
            if network not in known[state]:
                continue  # a greater one came meanwhile
            looked += 1
            for what, new, said in self._next(state, network):
                networks = known.get(new)
                if networks is None:
                    known[new] = networks = []
                    why = self._wrong(new)
                    if why:
                        raise Violated(why, *_told((what, path)))
                now = network | said
                if not any(now | other == other for other in networks):
                    networks[:] = [other for other in networks if other | now != now]
                    networks.append(now)
                    waiting.append((new, now, (what, path)))
        return looked

    def _next(self, state: State, network: int) -> Iterator[tuple[str, State, int]]:
        bounds = self._bounds
        for number, known in enumerate(state.members):
            member = self._members[known]
            if member.role is not Role.LEADER and member.term < bounds.terms and number in bounds.standing:
                yield self._then(state, number, "stands", lambda own: own._be_candidate(0.0))
            if member.role is Role.LEADER and state.entries < bounds.entries:
                text = f"entry {state.entries + 1}"
                proposed = replace(state, entries=state.entries + 1)
                yield self._then(proposed, number, f"proposes {text}", partial(_propose, text))
            if state.restarts < bounds.restarts and member.term:
                yield self._then(replace(state, restarts=state.restarts + 1), number, "is started again", None)
            there = network & self._for[number]
            while there:
                bit = there & -there
                there ^= bit
                _, sender, message = self._messages[bit.bit_length() - 1]
                yield self._then(state, number, (sender, message), partial(_receive, sender, message))

    def _then(self, state: State, number: int, what: object, do: Callable[[Raft], None] | None) -> tuple[str, State, int]:
        tried = (state.members[number], what)
        if tried not in self._tried:
            member = self._members[state.members[number]]
            if do is None:
                own = self._kind(number, self._bounds.size, 0.0, lambda: 0.0, (member.term, member.vote), member.log)
            else:
                own = _copy(member)
                do(own)
            self._tried[tried] = self._intern(own)
        new, said = self._tried[tried]
        members = (*state.members[:number], new, *state.members[number + 1 :])
        own, committed, leaders = self._members[new], state.committed, state.leaders
        if own.committed > len(committed):
            committed += tuple((entry, own.term) for entry in own.log[len(committed) : own.committed])
        if own.role is Role.LEADER and (own.term, number) not in leaders:
            leaders = tuple(sorted((*leaders, (own.term, number))))
        return f"member {number}: {what}", State(members, committed, leaders, state.entries, state.restarts), said

    def _intern(self, member: Raft) -> tuple[int, int]:
        """Return its number, and the bits of the messages that it wants to send. No time has passed."""
        said = 0
        for other, message in member.ready().messages:
            whole = (other, member.number, message)
            if whole not in self._bit_of:
                self._bit_of[whole] = 1 << len(self._messages)
                self._messages.append(whole)
                self._for[other] |= self._bit_of[whole]
            said |= self._bit_of[whole]
        member.heard = NEVER
        member._answered = dict.fromkeys(member._answered, NEVER)
        books = tuple(tuple(sorted(book.items())) for book in (member._next, member._match, member._asked))
        key = (member.number, member.term, member.vote, tuple(member.log), member.committed, member.role, frozenset(member._votes), books)
        if key not in self._number_of:
            self._number_of[key] = len(self._members)
            self._members.append(member)
        return self._number_of[key], said

    def _wrong(self, state: State) -> str:
        members = [self._members[number] for number in state.members]
        if len({term for term, _ in state.leaders}) < len(state.leaders):
            return "two leaders in one term"
        for member in members:
            mine = member.log[: member.committed]
            if mine != [entry for entry, _ in state.committed[: len(mine)]]:
                return "two members have committed different entries"
            if member.role is Role.LEADER:
                before = [entry for entry, term in state.committed if term < member.term]
                if member.log[: len(before)] != before:
                    return "a leader lacks what was committed in a term before its own"
        for index, (entry, _) in enumerate(state.committed):
            if 2 * sum(member.log[index : index + 1] == [entry] for member in members) <= len(members):
                return "a committed entry is not on the disks of a majority"
        if not all(self._agree(one, other) for one in state.members for other in state.members if one < other):
            return "two logs agree in an entry and not in all before it"
        return ""

    def _agree(self, one: int, other: int) -> bool:
        if (one, other) not in self._logs_agree:
            first, second = self._members[one].log, self._members[other].log
            same = [index for index, (a, b) in enumerate(zip(first, second, strict=False), 1) if a.term == b.term]
            self._logs_agree[one, other] = not same or first[: same[-1]] == second[: same[-1]]
        return self._logs_agree[one, other]


def _propose(text: str, own: Raft) -> None:
    own.propose([text], 0.0)


def _receive(sender: int, message: RaftMessage, own: Raft) -> None:
    own.receive(sender, message, 0.0)


def _copy(member: Raft) -> Raft:
    own = copy.copy(member)
    for name in ("log", "_votes", "_next", "_match", "_answered", "_asked", "_out"):
        setattr(own, name, copy.copy(getattr(member, name)))
    return own


def _told(path: _Path | None) -> list[str]:
    told = []
    while path is not None:
        what, path = path
        told.append(what)
    return told[::-1]

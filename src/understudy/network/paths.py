"""Decide which rails lead to a peer: what was answered comes in, the next hops to use come out. Pure: no sockets, no clock.

A *path* is one rail to one peer. Paths are probed in rounds: one probe on each rail whose link is up, all at the same time. A round is
judged when every probe has an answer, or `patience` after its first answer. So a probe counts as lost only if another rail was faster by
that much, whatever this host and the peer did meanwhile: a process that was stopped, here or there, delays all rails alike. A round
without any answer shows nothing about a single rail. If all rounds are so, the peer has *stalled*, and no next hop is withdrawn.

    up    -> down   `losses` lost probes in a row, or the link is down
    down  -> up     the link is up, `answers` answered probes in a row, and the hold is over;
                    or at once if the last probe was answered and no other path to the peer is up

Each withdrawal doubles the hold, up to `hold_most`. After `forget` without a withdrawal it begins again with `hold`.

`hops` is never empty: without a path that is up, it has those whose last probe was answered, else those whose link is up, else all.

Limits: loss of single packets is counted, and withdraws nothing. A rail that is slow, but not by more than `patience`, stays in use.
All times are in seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

PENDING = 128  # rounds that wait for an answer; older ones are given up


class Cause(StrEnum):
    LINK = "link"  # the device has no carrier, is set down, or is gone
    PROBES = "probes"  # probes are not answered
    EARLIER = "earlier"  # the next hop was missing when this began


@dataclass(frozen=True)
class Limits:
    """See `configuration.ProbeSettings`."""

    patience: float = 0.25
    losses: int = 3
    answers: int = 10
    hold: float = 2.0
    hold_most: float = 300.0
    forget: float = 600.0
    report: float = 60.0
    stall: float = 1.0  # time without any answer after which the peer counts as stalled


@dataclass(frozen=True)
class Withdrawn:
    peer: str
    rail: str
    cause: Cause
    since: float  # when the first lost probe was sent, or the link was seen to be down
    hold: float  # minimum time until it is restored


@dataclass(frozen=True)
class Restored:
    peer: str
    rail: str
    seconds: float  # for which it was withdrawn
    early: bool  # before its time, because no other path to the peer is up


@dataclass(frozen=True)
class StaysDown:
    peer: str
    rail: str
    cause: Cause
    seconds: float


@dataclass(frozen=True)
class Stalled:
    peer: str
    seconds: float  # since the last answer


@dataclass(frozen=True)
class AnswersAgain:
    peer: str
    seconds: float


Change = Withdrawn | Restored | StaysDown | Stalled | AnswersAgain


@dataclass
class Path:
    """One rail to one peer."""

    rail: str
    since: float  # of its present state
    up: bool = True
    link: bool = True
    cause: Cause | None = None  # of the withdrawal
    rtt: float | None = None
    sent: int = 0
    lost: int = 0
    withdrawals: int = 0
    held_until: float = 0.0
    losses: int = 0  # in a row
    answers: int = 0  # in a row
    suspected: float = 0.0  # when the first probe of those losses was sent, or the link was seen to be down
    strikes: int = 0  # withdrawals that count for the hold
    reported: bool = False  # that it stays down


@dataclass
class _Round:
    sent: float
    rails: frozenset[str]
    answers: dict[str, float] = field(default_factory=dict)  # rail -> round-trip time
    first: float | None = None  # when the first answer arrived

    def is_decided(self, now: float, patience: float) -> bool:
        return self.first is not None and (self.answers.keys() == self.rails or now - self.first >= patience)


class Paths:
    """All paths to one peer."""

    def __init__(self, peer: str, rails: Sequence[str], limits: Limits, now: float, withdrawn: Collection[str] = ()) -> None:
        """Begin with all paths up, except those that are `withdrawn` in the present route: they are restored when they answer."""
        assert rails
        self.peer = peer
        self._limits = limits
        self._paths = {rail: Path(rail, now) for rail in rails}
        for rail in withdrawn:
            self._paths[rail].up, self._paths[rail].cause = False, Cause.EARLIER
        self._rounds: dict[int, _Round] = {}
        self._number = 0
        self._answered = now  # the last answer
        self._unanswered: float | None = None  # when the first probe after it was sent
        self._stalled: float | None = None  # the last answer before the present stall

    @property
    def paths(self) -> Mapping[str, Path]:
        return self._paths

    @property
    def stalled(self) -> bool:
        return self._stalled is not None

    def reaches(self, rail: str) -> bool:
        """Return whether the last probe on this rail was answered."""
        path = self._paths[rail]
        return path.link and path.answers > 0

    @property
    def hops(self) -> tuple[str, ...]:
        """The rails by which the peer is to be reached; never empty."""
        every = list(self._paths.values())
        for wanted in (
            [path for path in every if path.up],
            [path for path in every if self.reaches(path.rail)],
            [path for path in every if path.link],
        ):
            if wanted:
                return tuple(path.rail for path in wanted)
        return tuple(self._paths)

    def probe(self, now: float) -> tuple[int, tuple[str, ...]]:
        """Begin a round: return its number, and the rails on which a probe is to be sent."""
        self._number += 1
        rails = tuple(path.rail for path in self._paths.values() if path.link)
        if rails:
            self._rounds[self._number] = _Round(now, frozenset(rails))
            if self._unanswered is None:
                self._unanswered = now
        for rail in rails:
            self._paths[rail].sent += 1
        while len(self._rounds) > PENDING:
            self._give_up(next(iter(self._rounds)))
        return self._number, rails

    def answered(self, rail: str, number: int, now: float) -> None:
        """The probe of this round has an answer. One that comes too late, or again, changes nothing."""
        self._answered, self._unanswered = now, None
        found = self._rounds.get(number)
        if found is None or rail not in found.rails or rail in found.answers:
            return
        found.answers[rail] = now - found.sent
        if found.first is None:
            found.first = now

    def link(self, rail: str, works: bool, now: float) -> None:
        """The device of the rail has a link, or none."""
        path = self._paths[rail]
        if path.link and not works:
            path.suspected = now
            path.answers = 0
        path.link = works

    def judge(self, now: float) -> list[Change]:
        """Decide by everything that has arrived until `now`."""
        for number, one in list(self._rounds.items()):
            if one.first is None:
                continue
            if not one.is_decided(now, self._limits.patience):
                break  # in their order, because losses and answers in a row count
            self._count(one)
            del self._rounds[number]
            for older in [other for other in self._rounds if other < number]:
                self._give_up(older)
        return [*self._stall(now), *self._withdraw(now), *self._restore(now), *self._report(now)]

    def _count(self, one: _Round) -> None:
        for rail in one.rails:
            path = self._paths[rail]
            if (rtt := one.answers.get(rail)) is not None:
                path.rtt, path.losses, path.answers = rtt, 0, path.answers + 1
            else:
                path.suspected = path.suspected if path.losses else one.sent
                path.lost, path.losses, path.answers = path.lost + 1, path.losses + 1, 0

    def _give_up(self, number: int) -> None:
        """A round without an answer shows nothing about one rail; its probes are lost."""
        one = self._rounds.pop(number)
        for rail in one.rails - one.answers.keys():
            self._paths[rail].lost += 1

    def _stall(self, now: float) -> list[Change]:
        silent = self._unanswered is not None and now - self._unanswered >= self._limits.stall
        if silent and self._stalled is None:
            self._stalled = self._answered
            return [Stalled(self.peer, now - self._answered)]
        if self._stalled is not None and self._unanswered is None:
            since, self._stalled = self._stalled, None
            return [AnswersAgain(self.peer, now - since)]
        return []

    def _withdraw(self, now: float) -> list[Change]:
        found: list[Change] = []
        for path in self._paths.values():
            if not path.up:
                continue
            if path.strikes and now - path.since >= self._limits.forget:
                path.strikes = 0
            if path.link and path.losses < self._limits.losses:
                continue
            hold = min(self._limits.hold * 2 ** min(path.strikes, 64), self._limits.hold_most)
            path.up, path.since, path.held_until, path.reported = False, now, now + hold, False
            path.cause = Cause.PROBES if path.link else Cause.LINK
            path.withdrawals, path.strikes = path.withdrawals + 1, path.strikes + 1
            found.append(Withdrawn(self.peer, path.rail, path.cause, path.suspected, hold))
        return found

    def _restore(self, now: float) -> list[Change]:
        found: list[Change] = []
        none_is_up = not any(path.up for path in self._paths.values())
        for path in self._paths.values():
            if path.up or not path.link:
                continue
            in_time = path.answers >= self._limits.answers and now >= path.held_until
            early = none_is_up and path.answers > 0
            if in_time or early:
                found.append(Restored(self.peer, path.rail, now - path.since, not in_time))
                path.up, path.since, path.cause, path.losses = True, now, None, 0
        return found

    def _report(self, now: float) -> list[Change]:
        found: list[Change] = []
        for path in self._paths.values():
            if path.cause is not None and not path.reported and now - path.since >= self._limits.report:
                path.reported = True
                found.append(StaysDown(self.peer, path.rail, path.cause, now - path.since))
        return found

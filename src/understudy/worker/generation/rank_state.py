"""The state of a rank: the registered state, knowledge about it, and the part that is handed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from understudy.core.model import VotePhase
from understudy.messages import coverage
from understudy.worker.encoding.messages import BuddyCopy, StateDigests
from understudy.worker.errors import BadMessage
from understudy.worker.frameworks.base import FrameworkAdapter
from understudy.worker.state.digest_cache import DigestCache
from understudy.worker.state.pre_vote_changes import Found, PreVoteChanges
from understudy.worker.state.preallocation import Preallocation
from understudy.worker.state.rank_local import LocalState
from understudy.worker.state.registry import State


@dataclass(frozen=True)
class RankState:
    state: State
    local: LocalState
    frameworks: FrameworkAdapter  # all of them together
    pre_vote: PreVoteChanges  # parameters and moments that change before a vote
    digest_cache: DigestCache
    preallocation: Preallocation

    def copy_of(self, transaction: int) -> BuddyCopy | None:
        """Return this rank's own copy as of the vote of `transaction`, if it is one of the last two."""
        return self.local.sealed.get(transaction)

    def use_wait(self, phase: VotePhase, decided: Callable[[], bool]) -> None:
        """Compute digests until the wait is over. After its vote a rank's state may be about to change, and some frameworks (FSDP2) have
        other tensors in a parameter's place.
        """
        if phase is not VotePhase.VOTED and not self.frameworks.replaces_parameters():
            self.digest_cache.make(decided)
        else:
            self.digest_cache.forget()

    def digests(self) -> dict[str, int]:
        """Return the digests of every entry."""
        return self.state.digests(self.state.all_tensors())


@dataclass(frozen=True)
class StateSummary:
    """What a rank reports of its state: digests, entries that it has seen move, and the parameter to which each moment belongs."""

    digests: dict[str, int]
    moved: set[str]
    owners: dict[str, str]
    pre_vote: Found

    def message(self) -> StateDigests:
        """Return the message, with each name once."""
        names = list(self.digests)
        number = {name: i for i, name in enumerate(names)}
        moved = [number[name] for name in self.moved if name in number]
        owners = {number[name]: number[owner] for name, owner in self.owners.items() if name in number and owner in number}
        return StateDigests(names, list(self.digests.values()), moved, owners, self.pre_vote)

    @staticmethod
    def of(message: StateDigests) -> StateSummary:
        """Decode a message. Raises `BadMessage` if numbers and names do not match."""
        names = message.names
        numbers = [*message.moved, *message.owners, *message.owners.values()]
        if len(message.digests) != len(names) or not all(0 <= number < len(names) for number in numbers):
            raise BadMessage(coverage.MALFORMED())
        owners = {names[moment]: names[parameter] for moment, parameter in message.owners.items()}
        return StateSummary(dict(zip(names, message.digests, strict=True)), {names[n] for n in message.moved}, owners, message.pre_vote)

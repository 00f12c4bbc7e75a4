"""The vote of a transaction: every rank hands a copy of its own state to its buddies, and all agree that they can commit.

The fields that participants vote with are sent as one vector of numbers, of which all ranks get the greatest, element by element, and one
of bits, of which they get those that any rank has set. A field that shows whether all ranks have the same value takes two numbers, the
value and its negative.
"""

from __future__ import annotations

from collections.abc import Sequence

from understudy.common.page_view import Activity
from understudy.core.commands import Recover
from understudy.core.model import VotePhase
from understudy.messages import worker_processes
from understudy.worker import hooks
from understudy.worker.data.loops import Loops
from understudy.worker.data.results import Results
from understudy.worker.encoding.messages import BuddyCopy
from understudy.worker.errors import GenerationAborted, PeerLost
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.step_copy import SHARED
from understudy.worker.participant import Reduce, Step, VoteField, VoteResult
from understudy.worker.step.order import Order
from understudy.worker.transport.channel import Channel
from understudy.worker.verification.redo import DIFFERS
from understudy.worker.verification.verification import Verification

_SILENT = -(1 << 63)  # less than any rank's number
_EQUAL, _ANY = Reduce.EQUAL, Reduce.ANY  # an attribute lookup of an enumeration takes time, and this runs in every step


def ballot(fields: Sequence[VoteField]) -> tuple[list[int], list[int]]:
    """Return this rank's vote: numbers, whose maximum is wanted, and bits."""
    found: list[int] = []
    bits: list[int] = []
    for _, reduce, value in fields:
        if reduce is _EQUAL:
            found += (_SILENT, _SILENT) if value is None else (value, -value)
            continue
        assert value is not None, "only a field that must be EQUAL may be None on a rank"
        (bits if reduce is _ANY else found).append(value)
    return found, bits


def result(fields: Sequence[VoteField], greatest: Sequence[int], bits: Sequence[int]) -> dict[str, int | None]:
    """Return the result of a vote: `fields` of any rank, and the combined votes of all ranks, element by element."""
    numbers, every, found = iter(greatest), iter(bits), dict[str, int | None]()
    for name, reduce, _ in fields:
        value = next(every if reduce is _ANY else numbers)
        found[name] = value if reduce is not _EQUAL or value == -next(numbers) else None
    return found


class Votes:
    def __init__(self, context: RankContext, order: Order, loops: Loops, results: Results, verification: Verification) -> None:
        self._progress, self._membership, self._local = context.progress, context.membership, context.rank_state.local
        self._order, self._loops, self._results = order, loops, results
        self._first, self._redo, self._issued = verification.first, verification.redo, verification.issued

    def run(self, step: Step) -> None:
        """Agree with all ranks that this transaction can commit. Raises `GenerationAborted` or `PeerLost` if it has to be redone."""
        progress, membership = self._progress, self._membership
        if progress.must_redo or membership.aborted():
            if not progress.must_redo and self._issued.untouched and not (step.alone or step.skipped):
                self._redo.keep(step.attempt)  # no collective that it waited for was broken
            raise GenerationAborted("the generation is over: this attempt cannot be voted for")
        if membership.groups.is_broken():  # the others may not notice: while they vote they need none of the script's connections
            raise PeerLost(worker_processes.GROUPS_BROKE())
        self._order.before_vote(step)
        if not step.alone:
            self._agree(step)
        progress.past_vote = True
        self._order.passed(step)
        membership.control.page.enter(Activity.COMMITTING, progress.transaction)

    def _agree(self, step: Step) -> None:
        progress, membership = self._progress, self._membership
        channel = membership.channel
        assert channel is not None
        place = self._loops.next_place()
        results = self._results.encoded(place)
        copy = self._local.make(progress.transaction, place, progress.step, self._loops.boundary, results, step.carried)
        progress.phase = VotePhase.VOTED
        membership.control.page.enter(Activity.VOTED, progress.transaction)
        unbroken = not membership.aborted()  # no wait of its collectives was ended
        try:
            hooks.fire("vote")
            self._first.vote(channel)
            membership.hand_over(copy)
            hooks.fire("vote copies")
            agreed = self._exchange(channel)
            if agreed[SHARED] is None:  # what all ranks have in common is in no copy
                self._hand_over_whole(channel, copy, step)
            hooks.fire("vote passed")
            if agreed[DIFFERS]:
                self._redo.disputed()
            self._order.voted(agreed)
        except RuntimeError as error:
            decision = self._redo.reported(membership.quiesce_after(error))
            if self._goes_on(decision):
                self._local.make_whole(copy, step.carried)  # whether all ranks have the same is unknown: buddies get this copy next
                return
            if unbroken and not step.skipped:
                self._redo.keep(step.attempt)
            self._progress.must_redo = True
            raise GenerationAborted("this transaction is redone") from error

    def _exchange(self, channel: Channel) -> VoteResult:
        fields = self._order.vote_fields()
        own = ballot(fields)
        hooks.fire("vote agreement", channel=channel, ballot=own)
        return result(fields, *channel.vote(*own))

    def _hand_over_whole(self, channel: Channel, copy: BuddyCopy, step: Step) -> None:
        self._membership.hand_over(self._local.make_whole(copy, step.carried))
        channel.receipt()

    def _goes_on(self, decision: Recover) -> bool:
        """Return whether the vote is rolled forward."""
        return decision.start == self._progress.transaction + 1

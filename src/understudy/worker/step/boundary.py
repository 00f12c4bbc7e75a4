"""The boundary between two transactions: there a rank joins the newest generation, takes part in comparisons, and hands over again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from understudy.common.page_view import Activity
from understudy.core.commands import Abort
from understudy.core.model import VotePhase
from understudy.worker.encoding.messages import HandedAgain, pack, unpack
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Reduce, VoteField, VoteResult
from understudy.worker.recovery.donor import Donation
from understudy.worker.recovery.newcomer import Newcomer
from understudy.worker.state.buddy_store import StoredBuddyCopy
from understudy.worker.state.rank_local import seal
from understudy.worker.step.result_after_vote import ResultAfterVote
from understudy.worker.step.setup import SetUp
from understudy.worker.verification.verification import Verification

_PAUSE = "pause"


class StepBoundary(Participant):
    def __init__(
        self,
        context: RankContext,
        setup: SetUp,
        donation: Donation,
        newcomer: Newcomer | None,
        verification: Verification,
        after_vote: ResultAfterVote,
    ) -> None:
        """Take the parts of the rank. `newcomer`: on a worker that started as one."""
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._setup, self._donation, self._newcomer = setup, donation, newcomer
        self._comparison, self._count = verification.comparison, verification.count
        self._after_vote = after_vote

    def join(self, redo: bool = False) -> None:
        """Join the newest generation, as often as there is one."""
        if self._setup.under_way:
            self._setup.complete()
        if not redo:
            self._count.notice_outside()
        self._progress.phase = VotePhase.IDLE
        self._membership.control.page.enter(Activity.IDLE, self._progress.transaction)
        self._setup.handlers.describe()
        self.join_newest()

    def vote_fields(self) -> Sequence[VoteField]:
        """Return the generation for which this rank has been asked to pause; -1: none."""
        announcement = self._membership.control.announcement
        asked = announcement is not None and not isinstance(announcement, Abort)
        return (VoteField(_PAUSE, Reduce.EQUAL, announcement.generation if announcement is not None and asked else -1),)

    def voted(self, result: VoteResult) -> None:
        pause = result[_PAUSE]
        if pause is not None and pause > self._progress.generation:
            self._membership.pause_agreed = pause

    def join_newest(self) -> None:
        """Do what all ranks have to do together, until nothing is left. Raises errors of the user's code, and `UnderstudyError`."""
        membership = self._membership
        while True:
            try:
                if membership.announced():
                    membership.quiesce()
                if membership.pending is not None:
                    self._join()
                elif membership.unshared:
                    self._hand_over_again()
                elif self._comparison.due():
                    self._comparison.run()
                else:
                    return
            except RuntimeError as error:
                if not membership.is_failure(error):
                    raise
                membership.quiesce()

    def _join(self) -> None:
        pending, rank = self._membership.pending, self._progress.rank
        assert pending is not None
        self._membership.control.page.enter(Activity.RECOVERING, self._progress.transaction)
        self._after_vote.complete()
        if rank in pending.newcomers and rank not in pending.leavers and self._newcomer is not None:
            self._newcomer.arrive()  # a loss came before the notice that its state was proven
        else:
            self._donation.run()

    def _hand_over_again(self) -> None:
        """Give this rank's copy and the record of its set-up to its buddies after every recovery. They may lack both: a buddy can be new,
        and if the ranks went on from a vote that was broken off, it is unknown which of them have read the copy.
        """
        membership, before = self._membership, self._progress.transaction - 1
        channel = membership.channel
        assert channel is not None
        self._after_vote.complete()
        copy = self._rank_state.copy_of(before)
        own = HandedAgain(membership.record, seal(copy) if copy is not None else b"")
        for rank, data in channel.hand_over(pack(own)).items():
            handed = unpack(HandedAgain, data)
            if handed.setup:
                membership.store.put_setup(rank, handed.setup)
            if handed.copy:
                membership.store.put(rank, StoredBuddyCopy(before, handed.copy))
        channel.receipt()
        membership.unshared = False
        self._progress.recovery.copied = time.time()

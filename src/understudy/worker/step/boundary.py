"""Between two transactions: where a rank joins the newest generation, takes part in comparisons, and hands over again."""

from __future__ import annotations

from collections.abc import Callable

from understudy.common.page_view import Activity
from understudy.core.model import Stand
from understudy.worker.encoding.messages import HandedAgain, pack, unpack
from understudy.worker.generation.control_handlers import ControlHandlers
from understudy.worker.generation.membership import Membership
from understudy.worker.generation.rank_state import RankState
from understudy.worker.progress import Progress
from understudy.worker.recovery.donor import Donation
from understudy.worker.state.rank_local import seal
from understudy.worker.state.snapshot_store import StoredSnapshot
from understudy.worker.step.setup import SetUp
from understudy.worker.verification.collective_count import CollectiveCount
from understudy.worker.verification.comparison import Comparison


class BetweenTransactions:
    def __init__(
        self,
        progress: Progress,
        membership: Membership,
        held: RankState,
        setup: SetUp,
        donation: Donation,
        comparison: Comparison,
        count: CollectiveCount,
        handlers: ControlHandlers,
    ) -> None:
        self._progress = progress
        self._membership = membership
        self._held = held
        self._setup = setup
        self._donation = donation
        self._comparison = comparison
        self._count = count
        self._handlers = handlers
        self.arrive: Callable[[], None] | None = None  # on a worker that came as a newcomer
        membership.while_waiting = self._use_the_wait

    def begin(self, redo: bool = False) -> None:
        """Joins the newest generation, as often as there is one."""
        if self._setup.under_way:
            self._setup.complete()
        if not redo:
            self._count.notice_outside()
        self._progress.phase = Stand.IDLE
        self._membership.control.page.enter(Activity.IDLE, self._progress.transaction)
        self._handlers.describe()
        self.join_newest()

    def join_newest(self) -> None:
        """What is to be done on all ranks together, until nothing is. Raises errors of the user's, and `UnderstudyError`."""
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
        if rank in pending.newcomers and rank not in pending.leavers and self.arrive is not None:
            self.arrive()  # a loss overtook the news that its state was proven
        else:
            self._donation.run()

    def _hand_over_again(self) -> None:
        """After a recovery: gives to this rank's buddies what they should hold of it. New ones do not, and of a copy that was made anew
        behind the vote nobody knows who has come to read it."""
        membership, before = self._membership, self._progress.transaction - 1
        channel = membership.channel
        assert channel is not None
        copy, new = self._held.copy_of(before), not membership.new_buddies.isdisjoint(channel.buddies)
        given = seal(copy) if copy is not None and (new or copy.behind) else b""
        own = HandedAgain(membership.record if new else b"", given)
        for rank, data in channel.hand_over(pack(own)).items():
            handed = unpack(HandedAgain, data)
            if handed.setup:
                membership.store.put_setup(rank, handed.setup)
            if handed.copy:
                membership.store.put(rank, StoredSnapshot(before, handed.copy))
        channel.receipt()
        membership.new_buddies.clear()
        membership.unshared = False

    def _use_the_wait(self, decided: Callable[[], bool]) -> None:
        # Behind its vote its state may be about to change, and some frameworks (FSDP2) have other tensors in a parameter's place.
        if self._progress.phase is not Stand.VOTED and not self._held.frameworks.replaces_parameters():
            self._held.digest_cache.make(decided)
        else:
            self._held.digest_cache.forget()

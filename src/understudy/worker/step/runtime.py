"""One rank's life, put together from its parts; what it does at its begin and at its end. Each part has a module of its own here."""

from __future__ import annotations

import os
from types import CodeType

from torch.optim.optimizer import register_optimizer_step_pre_hook

from understudy.common.names import OWN_TIME_VARIABLE
from understudy.common.page_view import Activity
from understudy.core.commands import Assign, Drill, Prepare
from understudy.core.events import Finished
from understudy.core.model import Stand
from understudy.worker.census.census import Census
from understudy.worker.collectives.device_times import CudaEvents, DeviceTimes
from understudy.worker.data.loops import Loops
from understudy.worker.data.results import Results
from understudy.worker.drill.drill import Drills
from understudy.worker.drill.rehearsal import Rehearsal
from understudy.worker.frameworks.aggregate import Frameworks, Shards
from understudy.worker.generation.control_handlers import ControlHandlers
from understudy.worker.generation.membership import Membership
from understudy.worker.generation.notices import Notices
from understudy.worker.generation.rank_state import RankState
from understudy.worker.guards.file_access import Opened
from understudy.worker.process.control import Control
from understudy.worker.progress import Progress
from understudy.worker.recovery.agreed_state import AgreedState
from understudy.worker.recovery.arrival import Arrival
from understudy.worker.recovery.attachment import Attachment
from understudy.worker.recovery.donor import Donation
from understudy.worker.recovery.newcomer import Newcomer
from understudy.worker.state.digest_cache import DigestCache
from understudy.worker.state.pre_vote_changes import PreVoteChanges
from understudy.worker.state.preallocation import Preallocation
from understudy.worker.state.rank_local import LocalState
from understudy.worker.state.registry import State
from understudy.worker.step.boundary import BetweenTransactions
from understudy.worker.step.setup import SetUp
from understudy.worker.step.transactions import Transactions
from understudy.worker.transport.rendezvous import StoreServer
from understudy.worker.verification.collective_count import CollectiveCount
from understudy.worker.verification.comparison import Comparison
from understudy.worker.verification.first_transaction import FirstTransaction
from understudy.worker.verification.post_vote_changes import PostVoteChanges
from understudy.worker.verification.reduction_order import AdditionOrder
from understudy.worker.verification.verdicts import Judge


class Runtime:
    def __init__(
        self,
        control: Control,
        role: Assign | Prepare,
        server: StoreServer,
        opened: Opened | None,
        boundary: CodeType,
    ) -> None:
        """`opened`: what the script opens, of a worker that takes a rank that another one has, or had; None on all others. `boundary`: the
        code of what wraps a transaction."""
        progress = self.progress = Progress(role.rank, int(role.environment["WORLD_SIZE"]))
        notices = self.notices = Notices(control, role.rank)
        membership = self.membership = Membership(control, server, progress)
        state = self.state = State(Shards())
        state.beside = Census(state.takes_care_of, boundary, state.randomness.find)
        local, preallocation = LocalState(state, role.rank), Preallocation(state)
        held = self.held = RankState(state, local, Frameworks(state, membership.groups), PreVoteChanges(state), DigestCache(state))
        loops, results = Loops(state.randomness, notices.tell), Results(notices.tell)
        self.loops, self.results = loops, results
        times = DeviceTimes(CudaEvents() if os.environ.get(OWN_TIME_VARIABLE) == "device" else None)
        handlers = self.handlers = control.handlers = ControlHandlers(progress, membership, preallocation, times)
        judge, order = Judge(progress, membership, local), AdditionOrder(membership.groups, role.rank)
        count = self._count = CollectiveCount(progress, membership, notices)
        post_vote = self.post_vote = PostVoteChanges(progress, membership, local, notices, loops.next_place)
        comparison = Comparison(progress, membership, held, post_vote, judge, notices)
        agreed = AgreedState(progress, held, loops, results, post_vote, comparison)
        first = FirstTransaction(progress, membership, notices)
        attachment = Attachment(progress, membership, comparison, order, count, first)
        setup = self._setup = SetUp(progress, membership, held, loops, comparison, order, count, handlers, notices)
        donation = Donation(progress, membership, held, agreed, attachment, comparison, judge, order)
        between = self._between = BetweenTransactions(progress, membership, held, setup, donation, comparison, count, handlers)
        self.transactions = Transactions(
            progress, membership, held, loops, results, between, comparison, post_vote, count, first, notices, times
        )
        self.transactions.watch = Drills(progress, membership, held, agreed, comparison, order)
        self.newcomer: Newcomer | None = None
        if opened is not None:
            arrival = Arrival(progress, membership, held, results, agreed, attachment, comparison, judge, order, preallocation, opened)
            self.newcomer = Newcomer(progress, membership, held, loops, results, agreed, preallocation, arrival, opened)
            between.arrive = self.newcomer.arrive

            def rehearse(drill: Drill) -> Rehearsal:
                rehearsal = Rehearsal(drill, progress, membership, held, agreed, comparison, arrival)
                self.transactions.watch = rehearsal
                return rehearsal

            self.newcomer.rehearse = rehearse

    def join(self, backend: str | None) -> None:
        """Makes the default process group: among the first workers, or alone from the lost rank's record."""
        (self.newcomer or self._setup).join(backend)
        register_optimizer_step_pre_hook(self.transactions.before_optimizer_step)

    def finish(self) -> int:
        """The script has ended here. Stays, as a donor, until every rank has finished; gives the exit code."""
        progress, membership, control = self.progress, self.membership, self.membership.control
        if self.newcomer is not None:
            self.newcomer.come_to_end()
        progress.finished = True
        progress.phase = Stand.IDLE
        self.handlers.describe()
        if self._setup.under_way:
            self._setup.abandon()
        else:
            self._count.notice_outside("behind the last transaction")
            control.page.enter(Activity.FINISHED, progress.transaction)
            # All state is compared once more, when every rank is here; perhaps a newcomer that came at the end waits in a hand-over.
            self._between.join_newest()
        while True:
            control.page.enter(Activity.FINISHED, progress.transaction)
            control.send(Finished(control.worker, progress.generation, progress.step))
            control.wait_for(lambda: control.released is not None or membership.pending is not None or membership.announced())
            if control.released is not None:
                return control.released.exit_code
            self._between.join_newest()

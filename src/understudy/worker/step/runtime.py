"""The runtime of a rank: its parts put together, and what it does when it joins and when the script ends. Each part has a module of its
own.
"""

from __future__ import annotations

import os
from collections.abc import Container
from types import CodeType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from understudy.common.names import OWN_TIME_VARIABLE
from understudy.common.page_view import Activity
from understudy.core.commands import Assign, Drill, Prepare
from understudy.core.events import Finished
from understudy.core.model import VotePhase
from understudy.worker.census.census import Census
from understudy.worker.collectives.device_times import CudaEvents, DeviceTimes
from understudy.worker.data.loops import Loops
from understudy.worker.data.results import Results
from understudy.worker.drill.drill import Drills, WatchSlot
from understudy.worker.drill.spare_drill import SpareDrill
from understudy.worker.frameworks.aggregate import Frameworks, Shards
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.control_handlers import ControlHandlers
from understudy.worker.generation.membership import Membership
from understudy.worker.generation.notices import Notices
from understudy.worker.generation.rank_state import RankState
from understudy.worker.generation.step_copy import StepCopy
from understudy.worker.guards.file_access import FileAccessGuard
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
from understudy.worker.step.boundary import StepBoundary
from understudy.worker.step.order import Order, Parts, participants
from understudy.worker.step.result_after_vote import ResultAfterVote
from understudy.worker.step.setup import SetUp
from understudy.worker.step.transactions import Transactions
from understudy.worker.step.votes import Votes
from understudy.worker.transport.groups import Groups
from understudy.worker.transport.rendezvous import StoreServer
from understudy.worker.verification.verification import Verification


class Runtime:
    def __init__(
        self,
        control: Control,
        role: Assign | Prepare,
        server: StoreServer,
        opened: FileAccessGuard | None,
        boundary: Container[CodeType],
    ) -> None:
        """Put the parts together. `opened`: guards the files that the script opens, on a worker that takes over the rank of another; None
        on all others. `boundary`: the codes that run a transaction.
        """
        self.progress = Progress(role.rank, int(role.environment["WORLD_SIZE"]))
        context = _context(control, server, self.progress, boundary)
        self.notices, self.membership, self.rank_state = context.notices, context.membership, context.rank_state
        self.state = context.rank_state.state
        self.loops, self.results = Loops(self.state.randomness, self.notices.tell), Results(self.notices.tell)
        times = DeviceTimes(CudaEvents() if os.environ.get(OWN_TIME_VARIABLE) == "device" else None)
        self.handlers = ControlHandlers(self.progress, self.membership, self.rank_state.preallocation, times)
        control.serve(self.handlers)
        copy = StepCopy(context)
        self.verification = verification = Verification.of(context, copy, self.loops.next_place)
        agreed, attachment = AgreedState(context, self.loops, self.results, verification), Attachment(context, verification)
        self.watch = watch = WatchSlot(Drills(context, copy, agreed, verification))
        self.newcomer: Newcomer | None = None
        if opened is not None:
            arrival = Arrival(context, self.results, agreed, attachment, verification, opened)

            def rehearse(drill: Drill) -> SpareDrill:
                watch.current = rehearsal = SpareDrill(drill, context, agreed, verification.comparison, arrival)
                return rehearsal

            self.newcomer = Newcomer(context, self.loops, self.results, agreed, arrival, rehearse)
        self._setup = SetUp(context, self.loops, verification, self.handlers)
        donation = Donation(context, agreed, attachment, verification)
        after_vote = ResultAfterVote(context, self.results)
        self._boundary = StepBoundary(context, self._setup, donation, self.newcomer, verification, after_vote)
        parts = Parts(self._boundary, times, copy, watch, self.loops, self.results, after_vote)
        order = Order(participants(context, verification, parts))
        votes = Votes(context, order, self.loops, self.results, verification)
        self.transactions = Transactions(context, order, votes, self._boundary, self.loops, watch)

    def join(self, backend: str | None) -> None:
        """Make the default process group: among the first workers, or alone from the lost rank's record."""
        (self.newcomer or self._setup).join(backend)
        # A script may compile the optimizer's step: the vote in it must not be traced.
        register_optimizer_step_pre_hook(torch.compiler.disable(self.transactions.before_optimizer_step))  # type: ignore[no-untyped-call]

    def passes(self, kind: str, returns_nothing: bool = False) -> tuple[bool, Any]:
        """Return whether this worker, a newcomer on its way, skips the transaction that is next, and then its result. `returns_nothing`:
        its function is annotated so.
        """
        newcomer = self.newcomer
        if newcomer is None or newcomer.done:
            return False, None
        place = self.loops.next_place()
        passed, kept = newcomer.at_transaction(place, returns_nothing)
        if passed:
            self.results.keep(place, kept)  # a later newcomer may need it from here
            self.loops.advance(kind)
            self.progress.step += kind == "step"
        return passed, kept

    def finish(self) -> int:
        """Finish after the end of the script: stay, as a donor, until every rank has finished; return the exit code."""
        progress, membership, control = self.progress, self.membership, self.membership.control
        if self.newcomer is not None:
            self.newcomer.come_to_end()
        progress.finished = True
        progress.phase = VotePhase.IDLE
        self.handlers.describe()
        if self._setup.under_way:
            self._setup.abandon()
        else:
            self.verification.count.notice_outside("after the last transaction")
            control.page.enter(Activity.FINISHED, progress.transaction)
            # All state is compared once more, when every rank is here; a newcomer that came at the end may be waiting in a hand-over.
            self._boundary.join_newest()
        while True:
            control.page.enter(Activity.FINISHED, progress.transaction)
            control.send(Finished(control.worker, progress.generation, progress.step))
            control.wait_for(lambda: control.released is not None or membership.pending is not None or membership.announced())
            if control.released is not None:
                return control.released.exit_code
            self._boundary.join_newest()


def _context(control: Control, server: StoreServer, progress: Progress, boundary: Container[CodeType]) -> RankContext:
    """Build what every part of the rank works with. `boundary` as in `Runtime`."""
    state = State(Shards())
    state.unregistered = Census(state.takes_care_of, boundary, state.randomness.find)
    groups = Groups(own_port=server.port)
    parts = LocalState(state, progress.rank), Frameworks(state, groups), PreVoteChanges(state), DigestCache(state), Preallocation(state)
    rank_state = RankState(state, *parts)
    membership = Membership(control, server, progress, groups, rank_state)
    return RankContext(progress, membership, rank_state, Notices(control, progress.rank))

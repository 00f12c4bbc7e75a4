"""The set-up of a first worker: the default process group of all of them, the record of what it receives, and its own vote."""

from __future__ import annotations

import time

import torch.distributed as dist

from understudy.common.page_view import Activity
from understudy.core.model import VotePhase
from understudy.messages import set_up, transactions
from understudy.worker.collectives.setup_record import SetUpRecorder
from understudy.worker.data.loops import Loops
from understudy.worker.errors import UsageError
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.control_handlers import ControlHandlers
from understudy.worker.state.registration import uncovered
from understudy.worker.transport.peers import Peers
from understudy.worker.verification.verification import Verification


class SetUp:
    def __init__(self, context: RankContext, loops: Loops, verification: Verification, handlers: ControlHandlers) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._notices = context.notices
        self._loops, self.handlers = loops, handlers
        self._comparison, self._order, self._count = verification.comparison, verification.order, verification.count
        self._recorder: SetUpRecorder | None = None

    @property
    def under_way(self) -> bool:
        """Return whether the set-up is under way: until the first transaction begins."""
        return self._recorder is not None

    def join(self, backend: str | None) -> None:
        """Make the default process group among the first workers, and start recording."""
        membership, progress = self._membership, self._progress
        assignment = membership.control.assignment
        assert assignment is not None
        membership.groups.install()
        meeting = membership.meet(assignment.store, assignment.generation)  # not generation 0 if the job had to start again
        self.handlers.in_setup = True
        self._recorder = SetUpRecorder()
        self._recorder.install()
        dist.init_process_group(backend, store=meeting.store, rank=progress.rank, world_size=progress.world_size)
        membership.peers = Peers(meeting, progress.rank)
        membership.open_channel(membership.peers, membership.peers.meet(range(progress.world_size)))
        progress.generation = assignment.generation

    def complete(self) -> None:
        """Hold the set-up's own vote, at the first begin: from here on the loss of a rank is survived."""
        membership, progress, channel = self._membership, self._progress, self._membership.channel
        assert self._recorder is not None and channel is not None
        self._refuse_uncovered()
        self._rank_state.state.set_up()
        membership.control.page.enter(Activity.VOTED, -1)  # if another rank ends without any transaction, this one would wait without end
        broken = self._finish_record(self._recorder)
        self._recorder, self.handlers.in_setup = None, False
        try:
            if broken is not None:
                raise broken
            self._order.begin()
            self._rank_state.frameworks.settle()
            self._comparison.run()
            copy = self._rank_state.local.make(-1, self._loops.next_place(), 0, self._loops.boundary, {})
            for rank, data in channel.hand_over(membership.record).items():
                membership.store.put_setup(rank, data)
            membership.hand_over(copy)
            progress.phase = VotePhase.VOTED
            channel.agree([0])
        except RuntimeError as error:
            decision = membership.quiesce_after(error)
            if decision.start != 0:
                raise UsageError(set_up.RESTARTS()) from error  # not reached: the orchestrator ends this worker instead
        progress.transaction, progress.phase = 0, VotePhase.IDLE
        self._count.end()

    def abandon(self) -> None:
        """Give up the set-up's vote: no transaction was ever run, so a loss starts the job again."""
        assert self._recorder is not None
        self._recorder.remove()

    def _finish_record(self, recorder: SetUpRecorder) -> RuntimeError | None:
        """Finish the record, and return the failure of a peer meanwhile, if any."""
        channel = self._membership.channel
        assert channel is not None
        tensors, broken = list(self._rank_state.state.all_tensors().values()), None
        try:
            unlike = channel.agree([int(recorder.moved(tensors))])[0] > 0
        except RuntimeError as error:
            unlike, broken = True, error
        self._membership.record = recorder.finish(tensors, unlike, time.time_ns())
        if recorder.given_up:
            self._notices.tell(transactions.OTHER_MODELS(megabytes=recorder.given_up / 1e6), everyone=False)
        return broken

    def _refuse_uncovered(self) -> None:
        groups = self._membership.groups
        if unknown := groups.unsupported():
            usable = " or ".join(groups.supported())
            raise UsageError(transactions.BACKEND_NOT_COVERED(backends=", ".join(unknown), usable=usable))
        if lacking := self._rank_state.frameworks.uncovered() or uncovered(self._rank_state.state):
            raise UsageError(lacking)

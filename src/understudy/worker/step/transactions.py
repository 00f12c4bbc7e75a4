"""One rank's life: its transactions, its votes, and what it does when a generation ends.

A transaction on a healthy job is: begin (a copy of what may change), the user's function, the vote (buddy copies in place, then
agreement), what follows it, committed. Nothing of it talks to the control plane.

When the control thread has announced a new generation, or a collective fails, the worker *quiesces*: whatever it was in, it
reports how far it is and waits for the decision.

    in the function, or in a vote that must be redone   the exception unwinds the function; state as of begin; redo
    in a vote that is rolled forward                     the vote returns; the function goes on and commits
    anywhere else                                        noticed at the next begin

In all three cases it attaches to the new generation at one place, the begin of the next transaction (`attachment`), where it gives
its state to newcomers. Until then the old groups stay broken, and refuse everything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from understudy.common.names import STRICT_VARIABLE
from understudy.common.page_view import Activity
from understudy.core.commands import Abort
from understudy.core.events import Committed, UsesDevice
from understudy.core.model import Stand
from understudy.messages import transactions as texts
from understudy.messages import worker_processes
from understudy.worker import points
from understudy.worker.collectives.device_times import DeviceTimes
from understudy.worker.data.loops import Loops
from understudy.worker.data.manual_iterators import by_hand, carried
from understudy.worker.data.results import Results
from understudy.worker.devices.device_in_use import Device, in_use
from understudy.worker.drill.drill import WatchSlot
from understudy.worker.errors import GenerationAborted, Misuse, PeerLost, UnderstudyError
from understudy.worker.generation.context import RankContext
from understudy.worker.guards.arguments import Arguments
from understudy.worker.guards.async_work import Works
from understudy.worker.state.pre_vote_changes import Before
from understudy.worker.state.rank_local import seal
from understudy.worker.state.registration import refuse_sparse_gradients
from understudy.worker.state.snapshot_store import StoredSnapshot
from understudy.worker.state.streams import cuda_in_use
from understudy.worker.step.boundary import StepBoundary
from understudy.worker.step.votes import Agreed, Flags
from understudy.worker.verification.post_vote_changes import Look, after
from understudy.worker.verification.verification import Verification


class Transactions:
    def __init__(
        self,
        context: RankContext,
        loops: Loops,
        results: Results,
        boundary: StepBoundary,
        verification: Verification,
        watch: WatchSlot,
        times: DeviceTimes,
    ) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._notices = context.notices
        self._loops, self._results, self._boundary, self._times = loops, results, boundary, times
        self._comparison, self._post_vote, self._count = verification.comparison, verification.post_vote, verification.count
        self._first, self._redo = verification.first, verification.redo
        self._watch = watch  # a drill, on a rank or on a spare
        self._strict = os.environ.get(STRICT_VARIABLE) == "1"  # what a newcomer would not have is refused, and not told
        self._works = Works()
        self._carried = False  # the last vote was of gradients that a later transaction goes on with
        self._begun: Before | None = None  # what is known of the begin of the running transaction
        self._reported = -1  # the newest generation in which a commit was reported
        self._told_device: Device | None = None
        self._last_commit = time.monotonic()
        self._longest = 0.0  # seconds between two commits

    def run(self, function: Callable[..., Any], kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one transaction until it is committed; gives the function's result."""
        name, progress, held = function.__qualname__, self._progress, self._rank_state
        if progress.kind:
            raise Misuse(texts.NESTED(name=name, running=progress.running))
        before = f"between the last transaction and {name}"
        if kind == "section":
            held.state.kept_gradients.keep()
        self._boundary.begin()
        place = self._loops.next_place()
        snapshot = held.state.snapshot()
        begun = self._begun = held.pre_vote.begin(name)
        self._post_vote.look(before, Look.AT_VALUES, snapshot.values)
        self._look_closely(begun)
        if kind == "step":
            self._watch.current.begin([args, kwargs], snapshot, begun)
        arguments = Arguments(name, [args, kwargs], begun.full)
        while True:
            try:
                result = self._attempt(kind, begun, lambda: function(*args, **kwargs))
                break
            except Exception as error:
                self._membership.leave_if_device_failed(error)
                self._refuse_unlike(error)
                self._works.end()
                self._times.abandon()
                self._watch.current.failed(error)
                if progress.past_vote:
                    self._explain_after_vote(error)
                    raise
                if not self._membership.is_failure(error):
                    raise
                if not progress.must_redo:
                    self._membership.quiesce_after(error)
            progress.kind = ""
            arguments.check(redone=True)
            held.frameworks.reset()
            held.state.restore(snapshot)
            held.pre_vote.restore(begun)
            held.frameworks.restore()
            if not self._watch.current.alone:
                self._boundary.begin(redo=True)
            self._post_vote.look(before, Look.AT_VALUES, snapshot.values)  # a newcomer comes along here, too
            progress.redo_since = time.time()
        self._watch.current.end(result)
        for told in (arguments.check(redone=False), self._works.left(name)):
            if told:
                self._notices.tell(told)
        self._commit(kind, name, place, result)
        points.reach("committed", kind=kind, function=name, result=result)
        return result

    def _attempt(self, kind: str, begun: Before, function: Callable[[], Any]) -> Any:
        """Once through the function and its vote. Raises what the function raises, and `GenerationAborted`."""
        progress = self._progress
        progress.kind, progress.function = kind, begun.function
        progress.past_vote = progress.must_redo = False
        progress.phase = Stand.RUNNING
        self._membership.control.page.enter(Activity.RUNNING, progress.transaction)
        self._comparison.watch()
        self._rank_state.frameworks.begin()
        points.reach("begin")
        self._works.begin(begun.function, begun.full)
        self._first.begin()
        if not self._watch.current.alone:
            self._times.begin()
        result = function()
        if progress.must_redo:
            raise GenerationAborted("the failure of this attempt was swallowed inside it")
        if not progress.past_vote:
            self.vote(carried=kind == "step" or self._carried)
        return result

    def _refuse_unlike(self, error: Exception) -> None:
        """Raises what did not fit in the first transaction after a recovery, if that is what `error` came from."""
        try:
            if not isinstance(error, UnderstudyError):
                self._first.refuse()
        except UnderstudyError as told:
            raise told from error
        finally:
            self._first.end()

    def _look_closely(self, begun: Before) -> None:
        """At begin: what a redo or a newcomer could not bear. More of it in the first transactions of a function."""
        uncovered = self._rank_state.state.beside.news()
        if uncovered and self._strict:
            raise Misuse(uncovered[0])
        for told in (*self._rank_state.state.attributes.news(), *uncovered):
            self._notices.tell(told)
        if begun.full and (name := by_hand(self._rank_state.state.loaders)):
            raise Misuse(texts.DRAWN_BY_HAND(name=name))
        if begun.full and self._loops.inside and carried():
            self._notices.tell(texts.OWN_ITERATOR())

    def vote(self, carried: bool = False) -> None:
        """Agreement of all ranks that this transaction can commit. Raises `GenerationAborted` or `PeerLost` if it has to be redone."""
        progress, membership, held = self._progress, self._membership, self._rank_state
        if progress.must_redo or membership.aborted():
            raise GenerationAborted("the generation is over: this attempt cannot be voted for")
        if membership.groups.is_broken():  # nobody else may have noticed: the others need no connection of the script's while they vote
            raise PeerLost(worker_processes.GROUPS_BROKE())
        self._times.end()
        if cuda_in_use():
            torch.cuda.synchronize()  # a vote says that this rank's collectives are done
        self._times.settle()
        self._first.settle()
        self._works.settle()
        if self._begun is not None and (told := held.pre_vote.look(self._begun)):
            self._notices.tell(told)
        held.frameworks.settle()
        held.state.kept_gradients.settle()
        if progress.transaction < 3:  # a step of each kind, mostly
            refuse_sparse_gradients(held.state)
        if self._watch.current.vote():
            self._passed()
            return
        self._redo.look()
        channel = membership.channel
        assert channel is not None
        place, boundary = self._loops.next_place(), self._loops.boundary
        copy = held.local.make(progress.transaction, place, progress.step, boundary, self._results.encoded(place), carried)
        self._count.vote()
        data = seal(copy)
        self._carried = carried
        progress.phase = Stand.VOTED
        membership.control.page.enter(Activity.VOTED, progress.transaction)
        unbroken = not membership.aborted()  # no wait of its collectives was ended
        try:
            points.reach("vote")
            self._first.vote(channel)
            for rank, received in channel.hand_over(data).items():
                membership.store.put(rank, StoredSnapshot(progress.transaction, received))
            points.reach("vote copies")
            flags = self._flags().numbers()
            points.reach("vote agreement", channel=channel, flags=flags)
            agreed = Agreed.of(channel.agree(flags))
            if not agreed.alike:  # on all ranks, and a part of it was in no copy
                whole = seal(held.local.make_whole(copy, carried))
                for rank, received in channel.hand_over(whole).items():
                    membership.store.put(rank, StoredSnapshot(progress.transaction, received))
                channel.receipt()
            points.reach("vote passed")
            self._read(agreed)
        except RuntimeError as error:
            decision = self._redo.told(membership.quiesce_after(error))
            if decision.start != progress.transaction + 1:
                if unbroken:
                    self._redo.keep()
                progress.must_redo = True
                raise GenerationAborted("this transaction is redone") from error
        self._passed()

    def _passed(self) -> None:
        self._progress.past_vote = True
        self._first.passed()
        if self._begun is not None:
            self._rank_state.pre_vote.passed(self._begun)
        self._membership.control.page.enter(Activity.COMMITTING, self._progress.transaction)

    def _flags(self) -> Flags:
        announcement = self._membership.control.announcement
        pause = announcement.generation if announcement is not None and not isinstance(announcement, Abort) else -1
        held = self._rank_state
        return Flags(pause, held.local.shared, self._redo.flag, held.pre_vote.flags(), self._post_vote.flags(), self._comparison.flags())

    def _read(self, agreed: Agreed) -> None:
        if agreed.redo_differs:
            self._redo.disputed()
        if agreed.pause > self._progress.generation:
            self._membership.pause_agreed = agreed.pause
        self._comparison.at_vote(agreed.alike)
        found = self._rank_state.pre_vote.agree(agreed.pre_vote)
        self._post_vote.agree(agreed.post_vote)
        self._comparison.read(agreed.compared, ignore=found)

    def _commit(self, kind: str, function: str, place: list[int], result: Any) -> None:
        progress, membership = self._progress, self._membership
        self._count.refuse_behind_vote(function)
        self._count.end()
        if kind == "step":
            self._rank_state.state.kept_gradients.learn(self._carried)
        progress.kind = ""
        progress.transaction += 1
        progress.step += kind == "step"
        progress.phase = Stand.IDLE
        self._redo.committed()
        self._post_vote.committed()
        self._results.keep(place, result)
        now = time.monotonic()
        if progress.transaction > 2 and progress.generation == self._reported:
            self._longest = max(self._longest, now - self._last_commit)
        self._last_commit = now
        membership.control.page.committed(progress.step, self._longest)
        membership.control.page.enter(Activity.IDLE, progress.transaction)
        if membership.pending is None and self._reported != progress.generation:
            self._report(progress.generation)
        self._loops.after_transaction(kind)
        self._rank_state.state.beside.committed()
        if membership.pending is None:
            self._post_vote.look(after(function), Look.AFTER)

    def _report(self, generation: int) -> None:
        """The first commit of a generation."""
        progress, membership = self._progress, self._membership
        self._reported = generation
        if progress.redo_since:
            membership.phase_of(generation, "redo", progress.redo_since)
            progress.redo_since = 0.0
        control, role = membership.control, membership.control.role
        device = in_use(role.environment if role is not None else {})
        if device.name and device != self._told_device:
            self._told_device = device
            control.send(UsesDevice(control.worker, device.name, device.others))
        done = progress.transaction - 1
        control.send(Committed(control.worker, generation, done, progress.step, self._redo.compared()))

    def _explain_after_vote(self, error: Exception) -> None:
        if self._membership.aborted() or self._membership.groups.is_broken():
            raise Misuse(texts.FAILED_AFTER_VOTE(rank=self._progress.rank, running=self._progress.running)) from error

    def before_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """A hook of every optimizer. Raises `Misuse`, and what `vote` raises."""
        progress = self._progress
        if progress.kind == "step":
            if not any(known is optimizer for known in self._rank_state.state.optimizers.values()):
                raise Misuse(texts.OPTIMIZER_NOT_REGISTERED(optimizer=type(optimizer).__qualname__))
            if not progress.past_vote:
                self.vote()
        elif progress.kind:
            raise Misuse(texts.OPTIMIZER_IN_SECTION(running=progress.running))
        elif progress.transaction >= 0:
            raise Misuse(texts.OPTIMIZER_OUTSIDE())
        points.reach("optimizer")

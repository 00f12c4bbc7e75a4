"""One rank's life: its transactions, its votes, and what it does when a generation ends.

A transaction on a healthy job is: begin (a copy of what may change), the user's function, the vote (buddy copies in place, then
agreement), what follows it, committed. Nothing of it talks to the control plane.

When the control thread has announced a new generation, or a collective fails, the worker *quiesces*: whatever it was in, it
reports how far it is and waits for the decision.

    in the function, or in a vote that must be redone   the exception unwinds the function; state as of begin; redo
    in a vote that is rolled forward                     the vote returns; the function goes on and commits
    anywhere else                                        noticed at the next begin

In all three cases it attaches to the new generation at one place, the begin of the next transaction (`recovery`), where it gives
its state to newcomers. Until then the old groups stay broken, and refuse everything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from understudy.core.commands import Abort, Assign, Prepare, Recover
from understudy.core.events import Committed, Finished, Notice
from understudy.core.model import Stand
from understudy.links.page import Activity
from understudy.worker.arguments import Arguments
from understudy.worker.buddies import Handed
from understudy.worker.codec import decode, encode
from understudy.worker.comparison import Comparison
from understudy.worker.control import Control
from understudy.worker.copies import LocalCopy, LocalState, seal
from understudy.worker.drawn import by_hand
from understudy.worker.early import Before, Early
from understudy.worker.errors import GenerationAborted, Misuse
from understudy.worker.frameworks import Frameworks
from understudy.worker.known import Known
from understudy.worker.late import POINTS, Late, Look
from understudy.worker.loops import END, Loops, Results
from understudy.worker.membership import Membership
from understudy.worker.missing import Missing
from understudy.worker.peers import Peers
from understudy.worker.randomness import cuda_in_use
from understudy.worker.record import Recorder
from understudy.worker.recovery import donate
from understudy.worker.registration import refuse_sparse_gradients, uncovered
from understudy.worker.rendezvous import StoreServer
from understudy.worker.responder import Answers
from understudy.worker.state import State
from understudy.worker.works import Works

if TYPE_CHECKING:
    from understudy.worker.newcomer import Newcomer


class Runtime(Membership):
    def __init__(self, control: Control, role: Assign | Prepare, server: StoreServer) -> None:
        super().__init__(control, role, server)
        self.state = State()
        self.frameworks = Frameworks(self.state, self.groups)
        self.loops = Loops(self.state.randomness, self.notice)
        self.local = LocalState(self.state, self.rank)
        self.missing, self.known, self.early = Missing(self.state), Known(self.state), Early(self.state)
        self.late, self.works = Late(self), Works()
        self.recorder: Recorder | None = None
        self.setup_record = b""  # what its set-up heard from others
        self.unshared = False  # a recovery with newcomers was completed, and copies are not handed over again yet
        self.newcomer: Newcomer | None = None  # on a worker that came as one
        self.stand = Stand.RUNNING
        self.past_vote = False
        self.must_redo = False
        self.kind = ""  # of the running transaction, "" between two
        self.results = Results()
        self.finished = False
        self._collectives_at_vote = 0
        self._carried = False
        self._before: Before | None = None  # what is known of the begin of the running transaction
        self._collectives_at_end = 0
        self.collectives_at_recovery = 0  # groups that were connected anew count from the same number on every rank, but not from 0
        self._noticed: set[str] = set()
        self.comparison = Comparison(self)
        self.sums: dict[str, int] = {}  # what shows the order in which its groups added up when training began, ...
        self.sums_now: dict[str, int] = {}  # ... and in this generation
        self._reported = -1  # the newest generation in which a commit was reported
        self._redo_started = 0.0
        self._last_commit = time.monotonic()
        self._longest = 0.0
        self.answers = control.responder = Answers(self)

    # -- set-up ----------------------------------------------------------------------------------------------------------

    def join(self, backend: str | None) -> None:
        """Makes the default process group among the first workers, and starts recording."""
        assert self.control.assignment is not None
        self.groups.install()
        generation = self.control.assignment.generation  # not 0 if the job had to start anew
        self.meet(self.control.assignment.store, generation)
        assert self.meeting is not None
        self.recorder = Recorder()
        self.recorder.install()
        dist.init_process_group(backend, store=self.meeting.store, rank=self.rank, world_size=self.world_size)
        self.peers = Peers(self.meeting, self.rank)
        self.open_channel(self.peers, self.peers.meet(range(self.world_size)))
        self.new_buddies.clear()
        self.generation = generation
        register_optimizer_step_pre_hook(self._before_optimizer_step)

    def _arm(self) -> None:
        """The set-up's own vote, at the first begin: from here on the loss of a rank is survived."""
        assert self.recorder is not None and self.channel is not None
        self._refuse_uncovered()
        self.state.set_up()
        self.control.page.enter(Activity.VOTED, self.transaction)  # if another rank ends without any transaction, this one waits in vain
        record, broken = self._finish_record(self.recorder)
        self.recorder = None
        try:
            if broken is not None:
                raise broken
            self.sums = self.groups.sums()
            self.frameworks.settle()
            self.comparison.run()
            copy = self.local.make(-1, self.loops.next_place(), 0, self.loops.boundary, {})
            for rank, data in self.channel.hand_over(record).items():
                self.shelf.put_setup(rank, data)
            for rank, data in self.channel.hand_over(seal(copy)).items():
                self.shelf.put(rank, Handed(-1, data, False))
            self.stand = Stand.VOTED
            self.channel.agree([0])
        except RuntimeError as error:
            decision = self.quiesce_after(error, self.stand)
            if decision.start != 0:
                raise Misuse("the job starts anew") from error  # not reached: the orchestrator ends this worker instead
        self.transaction, self.stand = 0, Stand.IDLE
        self._collectives_at_end = self.groups.collectives()

    def _finish_record(self, recorder: Recorder) -> tuple[bytes, RuntimeError | None]:
        """The record of the set-up, and the failure of a peer meanwhile."""
        assert self.channel is not None
        tensors, broken = list(self.state.all_tensors().values()), None
        try:
            unlike = self.channel.agree([int(recorder.moved(tensors))])[0] > 0
        except RuntimeError as error:
            unlike, broken = True, error
        self.setup_record = recorder.finish(tensors, unlike)
        if recorder.given_up:
            self.notice(
                f"ranks do not make the same model: {recorder.given_up / 1e6:.1f} MB of registered state came from another rank in the "
                "set-up, too much to be kept for a newcomer. What the script derives from it before the first step (a frozen copy, a "
                "norm) would be something else on a newcomer. Seed every rank alike or load the same file on each, or raise "
                "UNDERSTUDY_SETUP_LIMIT (bytes)",
                everyone=False,
            )
        return self.setup_record, broken

    def _refuse_uncovered(self) -> None:
        unknown = self.groups.unsupported()
        if unknown:
            raise Misuse(f"process groups with backend {', '.join(unknown)} cannot be re-joined after a loss; use gloo or nccl")
        if lacking := uncovered(self.state):
            raise Misuse(lacking)

    # -- a transaction ---------------------------------------------------------------------------------------------------

    def run(self, function: Callable[..., Any], kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one transaction until it is committed; gives the function's result."""
        if self.kind:
            raise Misuse(f"{function.__qualname__} is a transaction inside a transaction ({self.kind}); call one after the other")
        before = f"between the last transaction and {function.__qualname__}"
        if kind == "section":
            self.state.kept_gradients.keep()
        self.begin()
        place = self.loops.next_place()
        snapshot = self.state.snapshot()
        begun = self._before = self.early.begin(function.__qualname__)
        self.late.look(before, Look.AT_VALUES, snapshot.values)
        self._look_closely(begun)
        arguments = Arguments(function.__qualname__, [args, kwargs], begun.full)
        while True:
            try:
                self.kind, self.past_vote, self.must_redo = f"{kind} {function.__qualname__}", False, False
                self.stand = Stand.RUNNING
                self.control.page.enter(Activity.RUNNING, self.transaction)
                self.comparison.watch()
                self.frameworks.begin()
                self.works.begin(begun.function, begun.full)
                result = function(*args, **kwargs)
                if self.must_redo:
                    raise GenerationAborted("the failure of this attempt was swallowed inside it")
                if not self.past_vote:
                    self.vote(carried=kind == "step" or self._carried)
                break
            except Exception as error:
                self.works.end()
                if self.past_vote:
                    self._explain_after_vote(error)
                    raise
                if not self.is_failure(error):
                    raise
                if not self.must_redo:
                    self.quiesce_after(error, self.stand)
            self.kind = ""
            arguments.check(redone=True)
            self.frameworks.reset()
            self.state.restore(snapshot)
            self.early.restore(begun)
            self.frameworks.restore()
            self.begin(redo=True)
            self.late.look(before, Look.AT_VALUES, snapshot.values)  # a newcomer comes along here, too
            self._redo_started = time.time()
        for told in (arguments.check(redone=False), self.works.left(begun.function)):
            if told:
                self.notice(told)
        self._commit(kind, function, place, result)
        return result

    def _look_closely(self, begun: Before) -> None:
        """At begin: what a redo or a newcomer could not bear. More of it in the first transactions of a function."""
        for told in self.state.attributes.news():
            self.notice(told)
        if begun.full and (name := by_hand(self.state.loaders)):
            raise Misuse(
                f"loader {name} is registered, but the script draws from it by hand (iter, next): a newcomer would start at its "
                f"beginning. Use "
                f"job.batches"
            )

    def begin(self, redo: bool = False) -> None:
        """Between transactions: joins the newest generation, as often as there is one."""
        if self.recorder is not None:
            self._arm()
        if not redo:
            self._notice_outside_collectives()
        self.stand = Stand.IDLE
        self.control.page.enter(Activity.IDLE, self.transaction)
        self.answers.describe()
        self._join_newest()

    def while_waiting(self, decided: Callable[[], bool], stand: Stand) -> None:
        # Behind its vote its state may be about to change, and FSDP2 has other tensors in a module's place in the middle of a step.
        if stand is not Stand.VOTED and not self.frameworks.sharded():
            self.known.make(decided)
        else:
            self.known.forget()

    def _join_newest(self) -> None:
        while True:
            try:
                if self.announced():
                    self.quiesce(Stand.IDLE)
                if self.pending is not None:
                    self.control.page.enter(Activity.RECOVERING, self.transaction)
                    again = self.rank in self.pending.newcomers and self.rank not in self.pending.leavers
                    if again and self.newcomer is not None:
                        self.newcomer.arrive()  # a loss overtook the news that its state was proven
                    else:
                        donate(self)
                elif self.unshared:
                    self._hand_over_again()
                elif self.comparison.due():
                    self.comparison.run()
                else:
                    return
            except RuntimeError as error:
                if not self.is_failure(error):
                    raise
                self.quiesce(Stand.IDLE)

    def _hand_over_again(self) -> None:
        """After a recovery: gives to new workers among this rank's buddies what they should hold of it."""
        assert self.channel is not None
        own: list[bytes] = [b"", b""]
        if not self.new_buddies.isdisjoint(self.channel.buddies):
            copy = self.own_copy(self.transaction - 1)
            own = [self.setup_record, seal(copy) if copy is not None else b""]
        for rank, data in self.channel.hand_over(encode(own)).items():
            record, sealed = decode(data)
            if record:
                self.shelf.put_setup(rank, record)
            if sealed:
                self.shelf.put(rank, Handed(self.transaction - 1, sealed, False))
        self.new_buddies.clear()
        self.unshared = False

    def vote(self, carried: bool = False) -> None:
        """Agreement of all ranks that this transaction can commit. Raises `GenerationAborted` if it has to be redone."""
        if self.must_redo or self.aborted() or self.groups.is_broken():
            raise GenerationAborted("the generation is over: this attempt cannot be voted for")
        assert self.channel is not None
        if cuda_in_use():
            torch.cuda.synchronize()  # a vote says that this rank's collectives are done
        self.works.settle()
        if self._before is not None and (told := self.early.look(self._before)):
            self.notice(told)
        self.frameworks.settle()
        if self.transaction < 3:  # a step of each kind, mostly
            refuse_sparse_gradients(self.state)
        place, boundary = self.loops.next_place(), self.loops.boundary
        copy = self.local.make(self.transaction, place, self.step, boundary, self.results.encoded(place), carried)
        self._collectives_at_vote = self.groups.collectives()
        data = seal(copy)
        self._carried = carried
        self.stand = Stand.VOTED
        self.control.page.enter(Activity.VOTED, self.transaction)
        try:
            for rank, received in self.channel.hand_over(data).items():
                self.shelf.put(rank, Handed(self.transaction, received, False))
            self._read_flags(self.channel.agree(self._flags()))
        except RuntimeError as error:
            decision = self.quiesce_after(error, self.stand)
            if decision.start != self.transaction + 1:
                self.must_redo = True
                raise GenerationAborted("this transaction is redone") from error
        self.past_vote = True
        if self._before is not None:
            self.early.passed(self._before)
        self.control.page.enter(Activity.COMMITTING, self.transaction)

    def _commit(self, kind: str, function: Callable[..., Any], place: list[int], result: Any) -> None:
        issued = self.groups.collectives()
        if issued > self._collectives_at_vote:
            count = issued - self._collectives_at_vote
            raise Misuse(
                f"rank {self.rank}: {function.__qualname__} issues {count} collective{'s' * (count != 1)} after its vote (which "
                f"precedes the first optimizer.step). If one failed there, state would already have changed. Put them before "
                "optimizer.step, or into a @job.section of their own"
            )
        self._collectives_at_end = issued
        if kind == "step":
            self.state.kept_gradients.learn(self._carried)
        self.kind = ""
        self.transaction += 1
        self.step += kind == "step"
        self.late.committed()
        self.stand = Stand.IDLE
        self.results.keep(place, result)
        now = time.monotonic()
        if self.transaction > 2 and self.generation == self._reported:
            self._longest = max(self._longest, now - self._last_commit)
        self._last_commit = now
        self.control.page.committed(self.step, self._longest)
        self.control.page.enter(Activity.IDLE, self.transaction)
        if self.pending is None and self._reported != self.generation:
            self._reported = self.generation
            if self._redo_started:
                self.phase_of(self.generation, "redo", self._redo_started)
                self._redo_started = 0.0
            self.control.send(Committed(self.control.worker, self.generation, self.transaction - 1, self.step))
        self.loops.after_transaction(kind)
        if self.pending is None:
            self.late.look(f"after {function.__qualname__}", Look.AT_STREAMS)

    def finish(self) -> int:
        """The script has ended here. Stays, as a donor, until every rank has finished; gives the exit code."""
        if self.newcomer is not None:
            self.newcomer.come_to_end()
        self.finished = True
        self.stand = Stand.IDLE
        self.answers.describe()
        if self.recorder is not None:
            self.recorder.remove()  # no transaction was ever run: a loss starts the job anew
        else:
            self._notice_outside_collectives("behind the last transaction")
            self.control.page.enter(Activity.FINISHED, self.transaction)
            # All state is compared once more, when every rank is here; perhaps a newcomer that came at the end waits in a hand-over.
            self._join_newest()
        while True:
            self.control.page.enter(Activity.FINISHED, self.transaction)
            self.control.send(Finished(self.control.worker, self.generation))
            self.control.wait_for(lambda: self.control.released is not None or self.pending is not None or self.announced())
            if self.control.released is not None:
                return self.control.released.exit_code
            self._join_newest()

    # -- small things ----------------------------------------------------------------------------------------------------

    def _flags(self) -> list[int]:
        announcement = self.control.announcement
        pausing = announcement.generation if announcement is not None and not isinstance(announcement, Abort) else -1
        shared = self.local.shared
        return [pausing, -pausing, shared, -shared, *self.early.flags(), *self.late.flags(), *self.comparison.flags()]

    def _read_flags(self, flags: list[int]) -> None:
        if flags[0] == -flags[1] and flags[0] > self.generation:
            self.pause_agreed = flags[0]
        self.comparison.at_vote(flags[2:4])
        found = self.early.agree(flags[4:7])
        self.late.agree(flags[7 : 7 + POINTS])
        self.comparison.read(flags[7 + POINTS :], ignore=found)

    def _explain_after_vote(self, error: Exception) -> None:
        if self.aborted() or self.groups.is_broken():
            raise Misuse(
                f"rank {self.rank}: a collective behind the vote of {self.kind} failed, after state had changed. Put collectives "
                "before the first optimizer.step, or into a @job.section of their own"
            ) from error

    def _before_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.kind.startswith("step"):
            if not any(known is optimizer for known in self.state.optimizers.values()):
                raise Misuse(f"{type(optimizer).__qualname__} is stepped but not registered: add it to job.register(...)")
            if not self.past_vote:
                self.vote()
        elif self.kind:
            raise Misuse(f"optimizer.step inside the {self.kind}: a section changes nothing; use @job.step")
        elif self.transaction >= 0:
            raise Misuse("optimizer.step outside a transaction: wrap the training step in @job.step")

    def _notice_outside_collectives(self, where: str = "") -> None:
        issued = self.groups.collectives()
        if issued > self._collectives_at_end >= 0 and self.pending is None:
            count = issued - self._collectives_at_end
            self.notice(
                f"{count} collective(s) {where or f'between transaction {self.transaction - 1} and {self.transaction}'} are in "
                "no transaction: if a rank is lost during one of them, the job ends. Wrap them in @job.section"
            )
        self._collectives_at_end = issued

    def notice(self, text: str, everyone: bool = True) -> None:
        """Tells the user once."""
        key = re.sub(r"[0-9]+", "", text)[:60]
        if key in self._noticed or not (everyone or self.rank == 0):
            return
        self._noticed.add(key)
        self.control.send(Notice(self.control.worker, self.rank, text))

    def arrived(self, recovery: Recover) -> None:
        """This newcomer is a rank like the others from now on."""
        self.stand = Stand.IDLE
        self.generation = recovery.generation

    def place_now(self) -> list[int]:
        return END if self.finished else self.loops.next_place()

    def own_copy(self, transaction: int) -> LocalCopy | None:
        return self.local.sealed.get(transaction)

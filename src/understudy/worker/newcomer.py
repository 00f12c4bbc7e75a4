"""A newcomer: a spare that takes a lost rank in the middle of a job.

It runs the script from its start. Until the place where the job continues, collectives are replayed, loops and transactions that
are over are passed by, and the batch of the current iteration is drawn again and compared. At that place it attaches,
receives its state, proves it, and is a rank like the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.optim.optimizer import register_optimizer_step_pre_hook

from understudy.common.page_view import Activity
from understudy.core.commands import Recover
from understudy.core.coverage import Replicas
from understudy.core.events import NewcomerReady, Prepared, Verified, VerifyFailed
from understudy.worker.attributes import is_of_module
from understudy.worker.codec import decode
from understudy.worker.copies import LocalCopy, Place
from understudy.worker.errors import DonorsDiffer, GenerationAborted, Misuse, NotTheSame, PeerLost, UnderstudyError
from understudy.worker.frameworks import disagreement
from understudy.worker.loaders import Source
from understudy.worker.loops import END, restore_streams
from understudy.worker.peers import Peers
from understudy.worker.reads import Reads
from understudy.worker.record import Replayer
from understudy.worker.recovery import (
    Donor,
    attached,
    changed_sums,
    connect,
    frameworks_of,
    judge,
    other_order,
    plan_for,
    rank_of,
    read_copy,
    read_donors,
)
from understudy.worker.rendezvous import FOREVER
from understudy.worker.transfer import Plan, answer, receive

if TYPE_CHECKING:
    from understudy.worker.runtime import Runtime

WORTH = timedelta(seconds=10)  # that a migration waits until the rank has said what it holds, at its next begin


class Newcomer:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._replayer: Replayer | None = None
        self._started = time.time()
        self._copy: LocalCopy | None = None
        self._job: dict[str, Any] = {}
        self._streams_set = False
        self._behind = False  # no transaction that is over lies ahead any more
        self.arrived = False
        self._reads = Reads(runtime.state, self._read)
        self._given: dict[str, bytes] = {}  # at the end of the job: values as donors have them there

    # -- set-up ----------------------------------------------------------------------------------------------------------

    def join(self, backend: str | None) -> None:
        """Makes the default process group without peers, from the lost rank's record."""
        runtime = self._runtime
        record = runtime.setup_record = self._fetch_record()
        runtime.groups.install()
        runtime.groups.detached = True
        self._replayer = Replayer(record, runtime.rank)
        self._replayer.install()
        dist.init_process_group(backend, store=HashStore(), rank=runtime.rank, world_size=runtime.world_size)
        register_optimizer_step_pre_hook(runtime._before_optimizer_step)

    def _fetch_record(self) -> bytes:
        """From whichever generation is the newest: the first one may end before its holders could answer."""
        control = self._runtime.control
        while True:
            known = (control.assignment, control.announcement, control.recovery, control.preparation)
            newest = max((command for command in known if command is not None), key=lambda command: command.generation)
            try:
                meeting = self._runtime.meet(newest.store, newest.generation)
                if control.generation == newest.generation:
                    return meeting.get(f"setup/{self._runtime.rank}")
            except (GenerationAborted, PeerLost) as error:
                if control.generation > newest.generation:
                    continue
                if control.assignment is None:  # nobody tells it that the generation is over, and nobody waits for it
                    control.wait_for(lambda newest=newest: control.generation > newest.generation)  # type: ignore[misc]
                else:
                    self._await_next(newest.generation, error)

    def _await_next(self, generation: int, error: RuntimeError) -> None:
        """After a failure in `generation`: waits until it is over, and says why it must be if nobody knows yet."""
        runtime = self._runtime
        if not isinstance(error, GenerationAborted) and not runtime.superseded(generation):
            runtime.report_broken(generation, str(error))
        runtime.control.wait_for(lambda: runtime.superseded(generation))

    def _recovery(self) -> Recover:
        """Waits for the decision of the newest generation."""
        control = self._runtime.control

        def known() -> bool:
            return control.recovery is not None and not self._runtime.superseded(control.recovery.generation)

        control.wait_for(known)
        assert control.recovery is not None
        return control.recovery

    def _learn(self) -> None:
        """At the first loop or transaction: where the job continues, and what the lost rank handed over."""
        runtime = self._runtime
        if self._copy is not None:
            return
        assert self._replayer is not None
        self._replayer.finish()
        runtime.state.set_up()
        if runtime.control.assignment is None:
            self._wait_for_rank()
        elif runtime.control.assignment.planned:
            self._take_memory(WORTH)
        runtime.phase_of(runtime.control.generation, "setup", self._started)
        runtime.control.send(NewcomerReady(runtime.control.worker, runtime.control.generation))
        runtime.control.page.enter(Activity.RECOVERING, -1)  # the survivors' decision may take long, if the job is held
        while self._copy is None:
            recovery = self._recovery()
            try:
                meeting = runtime.meet(recovery.store, recovery.generation)
                self._job = decode(meeting.get("job"))
                self._copy = read_copy(runtime, runtime.rank, recovery, meeting)
            except (GenerationAborted, PeerLost) as error:
                self._await_next(recovery.generation, error)
            except NotTheSame as error:
                self._reject(recovery.generation, str(error))
        runtime.control.page.enter(Activity.SETUP, -1)
        runtime.late.adopt(self._job["late_points"], self._job["late_agreed"])
        self._reads.install()

    def _take_memory(self, limit: timedelta = FOREVER) -> None:
        """Nobody waits for this newcomer yet: takes the memory that it will need, as the rank describes it, which is alive."""
        runtime = self._runtime
        assert runtime.meeting is not None
        assignment = runtime.control.assignment
        with suppress(GenerationAborted, PeerLost):  # it will cost time later, and nothing else
            described = decode(runtime.meeting.get(f"memory/{runtime.rank}", limit))
            runtime.missing.prepare(described, lambda: runtime.control.assignment is not assignment)

    def _wait_for_rank(self) -> None:
        """Prepared: the set-up is done, and nobody has lost this rank yet."""
        control = self._runtime.control
        control.page.enter(Activity.WARM, -1)
        control.send(Prepared(control.worker, self._runtime.rank))
        self._take_memory()
        control.wait_for(lambda: control.assignment is not None or control.released is not None)
        if control.assignment is None:
            assert control.released is not None
            os._exit(control.released.exit_code)  # not through the script's exit handlers: it has never been the rank
        os.environ.update(control.assignment.environment)
        self._started = time.time()

    @property
    def done(self) -> bool:
        """Whether this worker is a rank like any other: arrived, and not on its way through what is over."""
        return self.arrived and self.place != END

    @property
    def place(self) -> Place:
        """Where the job continues."""
        found: Place = self._job["place"]
        return found

    # -- the way through the script --------------------------------------------------------------------------------------

    def enter_loop(self, loop: int) -> tuple[bool, LocalCopy | None]:
        """Whether to run this loop at all, and the copy whose last iteration has to be drawn again first."""
        self._learn()
        assert self._copy is not None
        if self.place[0] > loop:
            self._runtime.step = self._job["steps_after"][loop]
            return False, None
        self._runtime.step = self._job["step"] - self._job["steps_here"]
        boundary = self._copy.boundary
        if boundary is not None and boundary.loop == loop:
            return True, self._copy
        return True, None

    def pass_by(self, loop: int, source: Source) -> None:
        """A loop that is over: its loader's sampler is where the loop left it, as far as that is known (of the last loop)."""
        assert self._copy is not None
        boundary = self._copy.boundary
        if boundary is not None and boundary.loop == loop:
            source.pass_by(boundary.position)
        if self._copy.place[0] == loop and not self._behind:
            self._set_streams()  # the script may draw behind the loop

    def redraw(self, source: Source) -> Any:
        """The batch of the last iteration that the lost rank handed over, drawn again and proven."""
        assert self._copy is not None
        try:
            return self._runtime.loops.redraw(source, self._copy, self._runtime.rank)
        except NotTheSame as error:
            self._reject(self._runtime.control.generation, str(error))

    def at_top(self) -> None:
        """At the top of the iteration in which the job continues, if none of its transactions is over: random streams from here."""
        assert self._copy is not None
        if not self._streams_set and self._copy.transaction >= 0:
            self._set_streams()

    def _set_streams(self) -> None:
        assert self._copy is not None
        runtime = self._runtime
        try:
            restore_streams(runtime.state.randomness, self._copy, runtime.rank)
        except NotTheSame as error:
            self._reject(runtime.control.generation, str(error))
        self._streams_set = self._behind = True
        if self.place == END and not self.arrived:
            self.arrive()  # no transaction follows at which it could

    def at_transaction(self, place: Place) -> tuple[bool, Any]:
        """Whether to pass this transaction by, and then its result. Arrives where the job continues."""
        self._learn()
        if self.done:
            return False, None
        if place < self.place:
            result = self._result(place)
            assert self._copy is not None
            if place == self._copy.place and self._copy.transaction >= 0:
                self._set_streams()
            return True, result
        if place > self.place:
            raise UnderstudyError(
                f"rank {self._runtime.rank}: this newcomer reached place {place}, behind {self.place} where the job continues: the "
                "script does not run the same way twice"
            )
        self.arrive()
        return False, None

    def _read(self, what: str) -> None:
        """The script saves or copies state on its way. It is right only at the end of the job, behind all that is over."""
        assert self._copy is not None
        control = self._runtime.control
        if self._copy.transaction < 0 or self._runtime.step == 0:
            return  # nothing was trained by then
        if self.place == END and self._behind:
            self._put_back()
            return
        text = (
            f"rank {self._runtime.rank}: this newcomer comes by code that saves or copies {what} between transactions. It has not the "
            "state of that moment, and what it wrote would go over what this rank has saved there. Put it into a @job.section that every "
            "rank calls"
        )
        if control.assignment is not None and control.assignment.planned:
            self._reject(control.generation, text)  # the rank stays where it is
        raise Misuse(f"{text}; the job ends")

    def _put_back(self) -> None:
        """What donors have given at the end of the job, and the script has changed again: they had the change already, as of a schedule
        that is stepped behind the last loop. Not attributes of modules, which a script sets for a while (eval mode).
        """
        state = self._runtime.state
        now = state.encoded_values(self._given.keys())
        for entry, data in self._given.items():
            if now.get(entry) != data:
                state.load_value(entry, data)

    def come_to_end(self) -> None:
        """The script has ended. Raises `UnderstudyError` if this newcomer has not passed the place where the job goes on."""
        if not self.arrived:
            raise UnderstudyError(
                f"rank {self._runtime.rank}: this newcomer has come to the end of its script without passing the place where the job goes "
                "on, so it never got its rank's state: whatever it has written at its end is wrong. The script does not run the same way "
                "twice"
            )
        self._reads.remove()
        self._put_back()

    def _result(self, place: Place) -> Any:
        assert self._copy is not None
        known, result = self._runtime.results.of_lost(place, self._copy.results, self._job["results"])
        if known:
            return result
        if place[1] >= 0 and place[:2] < self.place[:2]:
            return None
        raise UnderstudyError(
            f"rank {self._runtime.rank}: the result of the transaction at {place} cannot be given to a newcomer; let it return numbers, "
            "strings, tensors or containers of them"
        )

    # -- arrival ---------------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Attaches to the newest generation, as often as there is one, until the state is here and proven."""
        runtime = self._runtime
        self.arrived = False
        runtime.control.page.enter(Activity.RECOVERING, self._job["transaction"])
        while not self.arrived:
            recovery = self._recovery()
            try:
                with torch.inference_mode(False), self._reads.ours():
                    self._attach(recovery)
            except NotTheSame as error:
                self._reject(recovery.generation, str(error))
            except DonorsDiffer as error:
                self._await_next(recovery.generation, GenerationAborted(str(error)))  # the survivors tell
            except UnderstudyError:
                raise
            except RuntimeError as error:
                known = isinstance(error, GenerationAborted | PeerLost) or runtime.superseded(recovery.generation)
                if not known and not runtime.groups.is_broken():
                    raise  # nothing of the network: it would fail again
                self._await_next(recovery.generation, error)
                runtime.let_go()
        if self.place != END:
            self._reads.remove()

    def _attach(self, recovery: Recover) -> None:
        runtime = self._runtime
        meeting = runtime.meet(recovery.store, recovery.generation)
        job = decode(meeting.get("job"))
        runtime.transaction, runtime.step = job["transaction"], job["step"]
        runtime.late.adopt(job["late_points"], job["late_agreed"])
        state = runtime.state
        gradients = state.kept_gradients
        gradients.matter, gradients.kept, gradients.dropped = job["gradients"]
        runtime.local.replicas, runtime.local.comparisons = Replicas(job["replicas"]), job["comparisons"]
        assert self._replayer is not None
        self._replayer.remove()
        donors = read_donors(recovery, runtime.world_size, meeting)
        for donor in donors.values():
            runtime.early.adopt(donor.told.early)
        if self.place != END:
            self._compare_groups(recovery, donors)
        if judge(runtime, recovery, donors):
            raise GenerationAborted("the donors differ: the survivors tell")
        plan = plan_for(runtime, runtime.rank, recovery, donors, meeting)
        copy = read_copy(runtime, runtime.rank, recovery, meeting)
        runtime.state.reshard()
        runtime.state.match_groups(plan.values | copy.values)
        runtime.missing.make(plan.descriptions)
        if self.place != END:  # behind the making of gradients, which become views of buckets here
            runtime.frameworks.adopt(frameworks_of(recovery, runtime.world_size, donors))
        tensors = runtime.state.all_tensors()
        self._compare_entries(plan, copy, tensors.keys())

        def take(peers: Peers) -> None:
            started = time.time()
            receive(peers, tensors, plan)
            runtime.phase_of(recovery.generation, "transfer", started, plan.size)

        connect(runtime, recovery, meeting, runtime.rank, lambda peers: answer(peers, plan), take)
        started = time.time()
        for entry, data in plan.values.items():
            runtime.state.load_value(entry, data)
        runtime.local.apply(copy, plan.local)
        runtime.state.attributes.undo(plan.values.keys() | plan.local)
        if not self._streams_set:
            restore_streams(runtime.state.randomness, copy, runtime.rank)
            self._streams_set = True
        self._verify(plan, copy, donors)
        if self.place == END:
            self._given = {entry: data for entry, data in plan.values.items() if not is_of_module(entry)}
        else:
            self._compare_frameworks(recovery, donors)
        notes = self._notes()
        runtime.phase_of(recovery.generation, "verify", started)
        count = len(plan.expected) + len(plan.local) + len(copy.streams) + 1
        runtime.control.send(Verified(runtime.control.worker, recovery.generation, count, notes))
        runtime.comparison.every, came = job["compare"]
        runtime.comparison.came |= set(came)
        runtime.comparison.moved = set().union(*(donor.told.moved for donor in donors.values())) & plan.expected.keys()
        runtime.sums = {name: value for donor in donors.values() for name, value in donor.sums.items() if name in runtime.sums_now}
        runtime.local.sealed[copy.transaction] = copy
        runtime.local.versions[copy.transaction] = [(copy.value_digests, copy.tensor_digests)]
        self.arrived = True
        runtime.arrived(recovery)
        meeting.put(f"verified/{runtime.rank}", b"1")
        attached(runtime, recovery)

    def _compare_entries(self, plan: Plan, copy: LocalCopy, mine: Collection[str]) -> None:
        """In both directions. Raises `UnderstudyError`: another newcomer would not fare better."""
        theirs = plan.descriptions.keys() | copy.tensors.keys()
        if unknown := sorted(plan.descriptions.keys() - mine):
            raise UnderstudyError(
                f"rank {self._runtime.rank}: donors have {unknown[0]}, which this newcomer's script did not make: make all parts of "
                f"what is "
                "registered before the first transaction"
            )
        if extra := sorted(entry for entry in mine if entry not in theirs and "/state/" not in entry and not entry.endswith("/gradient")):
            raise UnderstudyError(
                f"rank {self._runtime.rank}: this newcomer's script has made {extra[0]}, which the others do not have: make and "
                f"remove parts of "
                "what is registered before the first transaction"
            )

    def _verify(self, plan: Plan, copy: LocalCopy, donors: Mapping[int, Donor]) -> None:
        """The last thing before this newcomer is a rank like the others. Raises `NotTheSame`."""
        runtime = self._runtime
        now = runtime.state.digests(runtime.state.all_tensors())
        wrong = sorted(entry for entry, value in plan.expected.items() if now.get(entry) != value)
        wrong += runtime.local.differences(copy, plan.local)
        if wrong:
            more = f" and {', '.join(wrong[1:4])}{', ...' if len(wrong) > 4 else ''}" if len(wrong) > 1 else ""
            raise NotTheSame(
                f"rank {runtime.rank}: {len(wrong)} of {len(plan.expected) + len(plan.local)} digests do not agree with the donors', "
                f"the first one of {wrong[0]}{more}"
            )
        for member, donor in donors.items():
            if donor.counters != [runtime.transaction, runtime.step]:
                raise NotTheSame(
                    f"rank {runtime.rank}: its counters of transactions and steps are {[runtime.transaction, runtime.step]}, those of rank "
                    f"{member} {donor.counters}"
                )
            for name, changed in changed_sums(donor.sums, runtime.sums_now):
                if changed:
                    raise NotTheSame(f"rank {runtime.rank}: {other_order(name)}")

    def _compare_groups(self, recovery: Recover, donors: Mapping[int, Donor]) -> None:
        """The members of every group, and their order in it, as each of the others has them."""
        rank, described = self._runtime.rank, self._runtime.groups.describe()
        for member, donor in donors.items():
            other = rank_of(recovery, self._runtime.world_size, member)
            mine = [entry for entry in described if other in entry[1]]
            theirs = [entry for entry in donor.groups if rank in entry[1]]
            if mine != theirs and other != rank and donor.groups:
                raise UnderstudyError(
                    f"rank {rank}: this newcomer made the process groups {mine} together with rank {other}, the job has {theirs}: "
                    "the script does not set up the same way twice"
                )

    def _compare_frameworks(self, recovery: Recover, donors: Mapping[int, Donor]) -> None:
        """What steers the collectives of DDP and the like. Raises `NotTheSame`."""
        runtime = self._runtime
        told = frameworks_of(recovery, runtime.world_size, donors)
        if different := disagreement({**told, runtime.rank: runtime.frameworks.described()}):
            raise NotTheSame(f"rank {runtime.rank}: {different}")

    def _notes(self) -> tuple[str, ...]:
        notes = [f"the result of the transaction at {key} is the one of another rank" for key in self._runtime.results.replaced]
        assert self._replayer is not None
        different = self._replayer.differences(self._runtime.state.storages())
        notes += [f"a large result of the set-up differs here and is not registered: {text}" for text in different]
        return tuple(notes)

    def _reject(self, generation: int, detail: str) -> None:
        """This newcomer's state is wrong: says so, and never goes on. The orchestrator ends this worker."""
        control = self._runtime.control
        control.send(VerifyFailed(control.worker, generation, detail))
        control.wait_for(lambda: False)

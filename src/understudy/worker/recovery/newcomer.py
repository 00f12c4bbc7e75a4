"""A newcomer: a spare that takes a lost rank in the middle of a job.

It runs the script from its start. Until the place where the job continues, collectives are replayed, loops and transactions that are
over are skipped, and the batch of the current iteration is drawn again and compared. At that place it attaches, receives its state,
proves it, and is a rank like the others.

Rules of the way through the script. Places are [loop, iteration, index] (`data.loops`).

- Loops that are over yield nothing. Of the last one, the last batch is drawn again and compared. If it came to the end of its loader, so
  does this one, because a sampler may count. Transactions that are over return the result of the lost rank from the buddy copy, or of
  another rank, with a note.
- At the loop where the job is, the data goes to the last position that the lost rank handed over. A batch that differs rejects this spare;
  if a file that the set-up has read is newer than the first set-up, it ends the job, because every other spare would read the same.
- If the job goes on in the next iteration, and the rank was lost before it handed over what changes after its vote, the newcomer runs the
  last iteration again: its transactions return what they returned, and after the last of them streams and names are those of the vote. This
  happens only when needed, because the code there may print and save. Changes of registered state by that code are overwritten, with a
  note.
- Code between transactions runs; the state that arrives overwrites its results. Saving or copying state there is refused
  (`guards.state_reads`), and so is writing a file from scratch (`guards.file_access`). Where all other ranks have ended, the place is after
  the last transaction. Values that the script changes from there on are put back before it saves, because those of the donors include that
  change already.

Rejected: to receive the state earlier, where the script first reads it. It was built and removed. Donors hold the state at the begin of the
next transaction, so anything that the script changes in between (a schedule, a counter, a loader) would be changed twice, and no rule for
putting it back was right for all orders.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from understudy.common.page_view import Activity
from understudy.core.commands import Drill
from understudy.core.events import NewcomerReady, Notice, Prepared
from understudy.core.model import DrillVerdict
from understudy.messages import newcomers
from understudy.worker import hooks
from understudy.worker.census import left_names
from understudy.worker.collectives.setup_record import SetUpReplayer
from understudy.worker.data.led_loops import Where
from understudy.worker.data.loaders import Source
from understudy.worker.data.loops import END, Loops, restore_streams
from understudy.worker.data.results import Results
from understudy.worker.encoding.messages import BuddyCopy, JobProgress, ScriptPosition
from understudy.worker.errors import BatchMismatch, StateMismatch, UnderstudyError, UsageError
from understudy.worker.generation.context import RankContext
from understudy.worker.guards.loop_variables import ReadAfter
from understudy.worker.guards.state_reads import Reads
from understudy.worker.recovery.agreed_state import AgreedState
from understudy.worker.recovery.arrival import Arrival
from understudy.worker.recovery.fetching import Fetching
from understudy.worker.recovery.takeover import Takeover

WORTH = timedelta(seconds=10)  # that a migration waits until the rank has described its memory, at its next begin


class Newcomer:
    def __init__(
        self,
        context: RankContext,
        loops: Loops,
        results: Results,
        agreed: AgreedState,
        arrival: Arrival,
        rehearse: Callable[[Drill], Takeover],
    ) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._loops, self._results = loops, results
        self._agreed, self._arrival, self._opened = agreed, arrival, arrival.opened
        self._rehearse = rehearse
        self._fetching = Fetching(context, arrival)
        self._replayer: SetUpReplayer | None = None
        self._started = time.time()
        self._known: tuple[JobProgress, BuddyCopy] | None = None  # where the job continues, and what the lost rank handed over
        self._streams_set = False
        self._caught_up = False  # no transaction that is over is ahead any more
        self._reads = Reads(context.rank_state.state, arrival.opened, self._read, self._wrote)
        self._takeover: Takeover | None = None  # this worker takes no rank, it computes one step in parallel with it
        self.arrived = False

    # -- set-up ----------------------------------------------------------------------------------------------------------

    def join(self, backend: str | None) -> None:
        """Make the default process group without peers, from the lost rank's record."""
        groups, progress = self._membership.groups, self._progress
        record = self._membership.record = self._fetching.record()
        groups.install()
        groups.detached = True
        self._replayer = SetUpReplayer(record, progress.rank)
        self._opened.over = self._replayer.set_up_at
        self._reads.prepare()
        self._replayer.install()
        dist.init_process_group(backend, store=HashStore(), rank=progress.rank, world_size=progress.world_size)

    def _learn(self) -> tuple[JobProgress, BuddyCopy]:
        """Learn, at the first loop or transaction, where the job continues, and what the lost rank handed over."""
        if self._known is not None:
            return self._known
        membership, control = self._membership, self._membership.control
        assert self._replayer is not None
        self._replayer.finish()
        self._rank_state.state.set_up()
        if read := self._opened.otherwise():  # nothing else would notice what follows from it
            control.send(Notice(control.worker, self._progress.rank, read))
        if control.assignment is None:
            self._wait_for_rank()
            if self._takeover is not None:
                job, copy = self._known = self._fetching.drilled(self._takeover)
                self._agreed.adopt_points(job)
                self._reads.install()
                return job, copy
        elif control.assignment.planned:
            self._fetching.take_memory(WORTH)
        membership.phase_of(control.generation, "setup", self._started)
        control.send(NewcomerReady(control.worker, control.generation))
        control.page.enter(Activity.RECOVERING, -1)  # the survivors' decision may take long, if the job is paused
        job, copy = self._known = self._fetching.position()
        control.page.enter(Activity.SETUP, -1)
        self._agreed.adopt_points(job)
        self._reads.install()
        return job, copy

    @property
    def _job(self) -> JobProgress:
        return self._learn()[0]

    @property
    def _copy(self) -> BuddyCopy:
        return self._learn()[1]

    def _wait_for_rank(self) -> None:
        """Wait, when prepared: the set-up is done, and this rank is not lost yet."""
        control = self._membership.control
        control.page.enter(Activity.WARM, -1)
        hooks.fire("prepared")
        control.send(Prepared(control.worker, self._progress.rank))
        self._fetching.take_memory()
        control.wait_for(lambda: control.assignment is not None or control.released is not None or control.drill is not None)
        if control.released is not None:
            os._exit(control.released.exit_code)  # not through the script's exit handlers: it has never been the rank
        if control.assignment is None:
            assert control.drill is not None
            self._takeover = self._rehearse(control.drill)
            return
        os.environ.update(control.assignment.environment)
        self._started = time.time()

    @property
    def done(self) -> bool:
        """Return whether this worker is a rank like any other: arrived, and not on its way through steps that are over."""
        return self.arrived and self.place != END

    @property
    def catching_up(self) -> bool:
        """Return whether its rank has already done what the script does here, or does it itself in parallel with this worker."""
        return not self.arrived or self._takeover is not None

    @property
    def place(self) -> ScriptPosition:
        """Return where the job continues."""
        return self._job.place

    def where(self) -> Where:
        """Return where the job continues."""
        job, copy = self._learn()
        return Where(job.place[0], job.place[1], job.step, copy.boundary.position.state if copy.boundary is not None else None)

    # -- the way through the script --------------------------------------------------------------------------------------

    def enter_loop(self, loop: int) -> tuple[bool, BuddyCopy | None]:
        """Return whether to run this loop at all, and the copy whose last iteration has to be drawn again first."""
        job, copy = self._learn()
        if job.place[0] > loop:
            self._progress.step = job.steps_after[loop]
            return False, None
        self._progress.step = job.step - job.steps_here
        if copy.boundary is not None and copy.boundary.loop == loop:
            return True, copy
        return True, None

    def pass_by(self, loop: int, source: Source, read_after: ReadAfter, frame: FrameType | None) -> None:
        """Skip a loop that is over: set its loader as the loop left it, as far as that is known, and the names of `frame` that are read
        after it (`read_after`).
        """
        registered = {id(thing) for thing in self._rank_state.state.values.values()}
        comes_later = any(id(part) in registered for part in source.parts)
        job, unregistered = self._job, self._rank_state.state.unregistered
        ended = job.ends[loop] if loop < len(job.ends) else {}

        def at_end() -> None:
            for entry, data in ended.items():
                if len(set(job.replicas.get(entry, ()))) <= 1:
                    unregistered.load(entry, data)

        try:
            last = self._loops.pass_by(source, self._copy, self._progress.rank, job.drained[loop], comes_later, at_end)
        except BatchMismatch as error:
            self._other_batch(error)
        if self._copy.place[0] == loop and not self._caught_up:
            self._arrival.names.put_own(self._copy, self._copy.earlier)
            self._arrival.names.are_set = True
            self._set_streams()  # the script may draw after the loop
        at_end()
        unregistered.ends[loop:] = [ended]
        unregistered.left = {**job.left, **self._copy.left}
        if frame is not None and read_after.names:
            doubtful = left_names.put(loop, frame, read_after, self._copy.left, job.left, last)
            self._arrival.names.of_others += [f"{name}, as the loop at {read_after.where} left it," for name in doubtful]

    def redraw(self, source: Source) -> tuple[Any, bool]:
        """Draw the batch of the last iteration that the lost rank handed over again, and prove it. Return whether to run that iteration:
        the job goes on in it, or what this rank did in it after its transaction is lost, and can be done once more.
        """
        job, copy = self._learn()
        assert copy.boundary is not None
        here = [copy.boundary.loop, copy.boundary.iteration]
        inside = job.place[:2] == here
        alike = job.top if inside else job.after  # the nearest that is known
        try:
            batch = self._loops.redraw(source, copy, self._progress.rank, lambda: self._set_names(alike, copy.top), exact=inside)
        except BatchMismatch as error:
            self._other_batch(error)
        if inside:
            return batch, True
        again = self._arrival.names.again = copy.place[:2] == here and self._lost_after_transaction()
        if again:
            self._progress.step = job.step - job.steps_here - job.steps_before
            self._set_names(alike, copy.top)
        return batch, again

    def _lost_after_transaction(self) -> bool:
        """Return whether changes that this rank had made after its last transaction, whose result is known, are lost with it."""
        job, copy = self._learn()
        if not self._results.is_known(copy.place, copy.results, job.results):
            return False
        return self._agreed.is_missed(copy, job)

    def _other_batch(self, error: BatchMismatch) -> NoReturn:
        why = self._opened.otherwise()
        if why:
            self._refuse(error.found)  # because of files that every other spare would find, too
        self._reject(str(error))

    def at_top(self) -> None:
        """Set the random streams at the top of the iteration in which the job continues, if none of its transactions is over."""
        if not self._streams_set and self._copy.transaction >= 0:
            self._set_streams()
        self._set_names(self._job.top, self._copy.earlier)
        self._arrival.names.are_set = True

    def _set_names(self, alike: Mapping[str, bytes], own: Mapping[str, bytes]) -> None:
        """Set names at this place of the script (`ScriptNames.put`)."""
        donors = self._fetching.donors(self._takeover, self._job.transaction)
        self._arrival.names.put(self._job, self._copy, self._progress.rank, [donor for _, donor in donors], alike, own)

    def _set_streams(self) -> None:
        try:
            restore_streams(self._rank_state.state.randomness, self._copy, self._progress.rank)
        except StateMismatch as error:
            self._reject(str(error))
        self._streams_set = self._caught_up = True
        if self.place == END and not self.arrived:
            self.arrive()  # no transaction follows at which it could

    def at_transaction(self, place: ScriptPosition, returns_nothing: bool = False) -> tuple[bool, Any]:
        """Return whether to skip this transaction, and then its result. Arrives where the job continues. `returns_nothing`: if the
        result of another rank is None, that of the lost rank was None, too.
        """
        self._learn()
        if self.done:
            return False, None
        if place < self.place:
            result = self._result(place, returns_nothing)
            if place == self._copy.place and self._copy.transaction >= 0:
                if place[1] >= 0:  # outside of loops it has passed all that sets them
                    self._set_names(self._job.after, self._copy.earlier)
                    self._arrival.names.are_set = True
                self._set_streams()
            return True, result
        if place > self.place:
            raise UnderstudyError(newcomers.PASSED_PLACE(rank=self._progress.rank, place=place, goal=self.place))
        self.arrive()
        return False, None

    def _read(self, what: str) -> None:
        """Handle a save or copy of state by the script on its way. It is right only at the end of the job, after all that is over."""
        if not self._may_write():
            self._refuse(newcomers.SAVES(rank=self._progress.rank, what=what))

    def _wrote(self, file: str) -> None:
        """Handle that the script is about to write a file from scratch on its way."""
        if not self._may_write():
            self._refuse(newcomers.REWRITES(rank=self._progress.rank, file=file))

    def _may_write(self) -> bool:
        if self._copy.transaction < 0 or self._progress.step == 0:
            return True  # nothing was trained by then
        if self.place != END or not self._caught_up:
            return False
        self._arrival.put_back()
        return True

    def _refuse(self, text: str) -> NoReturn:
        """Refuse to go on: another newcomer would fail, too."""
        assignment = self._membership.control.assignment
        if self._takeover is not None or (assignment is not None and assignment.planned):
            self._reject(text)  # the rank stays where it is
        raise UsageError(newcomers.JOB_ENDS(reason=text)) from None

    def _reject(self, detail: str) -> NoReturn:
        if self._takeover is not None:
            self._takeover.tell(DrillVerdict.DIFFERENT, detail)
        self._arrival.reject(self._membership.control.generation, detail)

    def come_to_end(self) -> None:
        """Handle the end of the script. Raises `UnderstudyError` if this newcomer has not passed the place where the job goes on."""
        if not self.arrived:
            raise UnderstudyError(self._opened.explained(newcomers.AT_THE_END(rank=self._progress.rank)))
        self._reads.remove()
        self._arrival.put_back()

    def _result(self, place: ScriptPosition, returns_nothing: bool) -> Any:
        known, result = self._results.of_lost(place, self._copy.results, self._job.results, returns_nothing)
        if known:
            return result
        if place[1] >= 0 and place[:2] < self.place[:2]:
            return None
        raise UnderstudyError(newcomers.RESULT_NOT_GIVEN(rank=self._progress.rank, place=place))

    def arrive(self) -> None:
        """Attach to the newest generation, as often as there is one, until the state is here and proven."""
        job, copy = self._learn()
        assert self._replayer is not None
        self.arrived = False
        self._results.adopt(copy.place, job.results)
        with self._reads.ours():
            if self._takeover is not None:
                self._takeover.arrive(job, self._streams_set, self._replayer)
            else:
                self._membership.control.page.enter(Activity.RECOVERING, job.transaction)
                self._arrival.run(job.place == END, self._streams_set, self._replayer)
        self.arrived = self._streams_set = True
        if self.place != END:
            self._reads.remove()

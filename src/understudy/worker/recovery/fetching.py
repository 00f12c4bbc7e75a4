"""What a newcomer asks others for on its way: the record of its rank's set-up, where the job continues, what its rank has handed over, and
the summaries of its donors' state. If a generation ends meanwhile, the newcomer asks again in the next one.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from understudy.core.model import DrillVerdict
from understudy.worker import hooks
from understudy.worker.encoding.messages import BuddyCopy, JobProgress, MemoryDescription, unpack
from understudy.worker.errors import GenerationAborted, PeerLost, StateMismatch
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.donors import Donors, read_copy
from understudy.worker.generation.members import Members
from understudy.worker.recovery.arrival import Arrival
from understudy.worker.recovery.attachment import read_job
from understudy.worker.recovery.takeover import Takeover
from understudy.worker.transport.rendezvous import FOREVER


class Fetching:
    def __init__(self, context: RankContext, arrival: Arrival) -> None:
        self._progress, self._membership = context.progress, context.membership
        self._preallocation = context.rank_state.preallocation
        self._arrival = arrival

    def record(self) -> bytes:
        """Return the record, from the newest generation: the first one may end before the holders of the record could answer."""
        control = self._membership.control
        while True:
            known = (control.assignment, control.announcement, control.recovery, control.preparation)
            newest = max((command for command in known if command is not None), key=lambda command: command.generation)
            try:
                meeting = self._membership.meet(newest.store, newest.generation)
                if control.generation == newest.generation:
                    return meeting.get(f"setup/{self._progress.rank}")
            except (GenerationAborted, PeerLost) as error:
                if control.generation > newest.generation:
                    continue
                if control.assignment is None:  # it is not notified when the generation ends, and no rank waits for it
                    control.wait_for(lambda newest=newest: control.generation > newest.generation)  # type: ignore[misc]
                else:
                    self._arrival.await_next(newest.generation, error)

    def position(self) -> tuple[JobProgress, BuddyCopy]:
        arrival = self._arrival
        while True:
            recovery = arrival.recovery()
            try:
                meeting = self._membership.meet(recovery.store, recovery.generation)
                job = read_job(meeting)
                return job, read_copy(Members(recovery, self._progress.world_size), self._progress.rank, meeting)
            except (GenerationAborted, PeerLost) as error:
                arrival.await_next(recovery.generation, error)
            except StateMismatch as error:
                arrival.reject(recovery.generation, str(error))

    def drilled(self, takeover: Takeover) -> tuple[JobProgress, BuddyCopy]:
        """Return, for a rank that is alive, where it begins its next step, and what it has handed over."""
        hooks.fire("rehearsal begin")
        try:
            job = read_job(takeover.meeting)
            return job, read_copy(takeover.members(job.transaction), self._progress.rank, takeover.meeting)
        except (GenerationAborted, PeerLost) as error:
            takeover.tell(DrillVerdict.BROKEN, str(error))
        except StateMismatch as error:
            takeover.tell(DrillVerdict.DIFFERENT, str(error))

    def take_memory(self, limit: timedelta = FOREVER) -> None:
        """Allocate the memory that the newcomer will need, as its rank describes it, which is alive. No rank waits for it yet."""
        meeting, control = self._membership.meeting, self._membership.control
        assert meeting is not None
        assignment = control.assignment
        with suppress(GenerationAborted, PeerLost):  # then it costs time later, and nothing else
            described = unpack(MemoryDescription, meeting.get(f"memory/{self._progress.rank}", limit))
            self._preallocation.prepare(described, lambda: control.assignment is not assignment)

    def donors(self, takeover: Takeover | None, transaction: int) -> Donors:
        """Return the reports of the members that give this newcomer its state."""
        arrival = self._arrival
        while True:
            try:
                if takeover is not None:
                    return Donors(takeover.members(transaction), takeover.meeting)
                recovery = arrival.recovery()
                return Donors(Members(recovery, self._progress.world_size), self._membership.meet(recovery.store, recovery.generation))
            except (GenerationAborted, PeerLost) as error:
                if takeover is not None:
                    takeover.tell(DrillVerdict.BROKEN, str(error))
                arrival.await_next(recovery.generation, error)

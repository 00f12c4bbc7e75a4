"""A spare that is to set up ahead of a loss has its time from when it is asked, not from when that was decided."""

from __future__ import annotations

import asyncio

from understudy.core import preparation
from understudy.core.commands import Command, Prepare
from understudy.core.events import Committed, Event, Expired, NodeJoined, WorkerStarted, WorkerWarm
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.orchestrator.chain import Chain
from understudy.orchestrator.journal import JobJournal, _Mark
from understudy.orchestrator.service import Service

LIMIT = 900.0


class Waiting:
    """A job of one rank and a spare that is to be prepared; its journal writes when it is told to."""

    def __init__(self) -> None:
        self.marks: list[_Mark] = []
        self.events: list[Event] = []
        self.sent: list[Command] = []
        self.machine = Machine(JobSpec("job", 1, 1, 1, spares=1, prepared=1), Timeouts(hang_first=LIMIT))
        self.service = Service(self.machine, JobJournal(self._put, Chain()), clock=lambda: 100.0, tell=lambda text: None)
        carry_out = self.service._carry_out

        def noted(commands: list[Command]) -> None:
            self.sent.extend(commands)
            carry_out(commands)

        self.service._carry_out = noted  # type: ignore[method-assign]

    def _put(self, entry: object) -> None:
        if isinstance(entry, _Mark):
            self.marks.append(entry)
        elif isinstance(entry, tuple):
            self.events.append(entry[1])

    async def write(self) -> None:
        while self.marks:
            self.marks.pop(0).reached()
            await asyncio.sleep(0)

    async def begin(self) -> None:
        """Until it is decided that the spare should be prepared."""
        self.service.attach(NodeJoined("n0", "127.0.0.1", 0))
        for name in list(self.machine.state.workers):
            self.service.submit(WorkerStarted(name, "n0", 1))
            self.service.submit(WorkerWarm(name, "127.0.0.1:7000"))
        await self.write()
        self.service.submit(Committed(self.machine.state.ranks[0], 0, 0, 1))

    def asked(self) -> bool:
        return any(isinstance(command, Prepare) for command in self.sent)

    def left(self) -> float:
        """Seconds."""
        return self.service._timers._running[preparation.TIMER].when() - asyncio.get_running_loop().time()


def test_a_spare_that_could_not_be_asked_is_not_late() -> None:
    async def run() -> None:
        job = Waiting()
        await job.begin()
        (spare,) = preparation.prepared_spares(job.machine.state)
        assert not job.asked() and job.marks
        for _ in range(preparation.IN_A_ROW + 1):  # the database is away for hours
            job.service._timers.set(preparation.TIMER, 0.0)
            job.service._expired(preparation.TIMER)
        assert spare in preparation.prepared_spares(job.machine.state) and Expired(preparation.TIMER) not in job.events
        job.service._timers.set(preparation.TIMER, 1.0)  # nearly over when it is asked
        await job.write()
        assert job.asked() and job.left() > LIMIT / 2
        job.service._timers.set(preparation.TIMER, 0.0)
        job.service._expired(preparation.TIMER)
        assert spare not in preparation.prepared_spares(job.machine.state) and Expired(preparation.TIMER) in job.events, "it had its time"
        job.service.suspend()

    asyncio.run(run())

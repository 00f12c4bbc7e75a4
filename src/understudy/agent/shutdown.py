"""End the workers of an agent: ask them to end, give those that have finished time for their exit handlers, then kill them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from understudy.agent import processes
from understudy.agent.config import AgentConfig
from understudy.agent.worker import Worker
from understudy.messages import agents


@dataclass(frozen=True)
class End:
    """The reason and the way in which the agent ends."""

    exit_code: int
    message: str = ""
    number: signal.Signals = signal.SIGTERM  # the signal for the workers
    patient: bool = False  # workers that are leaving by themselves get time for it
    ordered: bool = False  # the orchestrator has ordered it


class Shutdown:
    def __init__(self, config: AgentConfig, workers: Mapping[str, Worker], say: Callable[[str], None]) -> None:
        self.hurry = asyncio.Event()  # set: no more grace
        self.exits = asyncio.Event()  # set at every worker's end
        self._config = config
        self._workers = workers
        self._say = say
        self._loop = asyncio.get_running_loop()

    async def stop(self, end: End) -> None:
        """End the workers; return when all have ended, or do not end although they were killed."""
        # Exit handlers belong to the script. A spare has none; one that is still warming would not even receive the message. If it has run
        # the script in advance, they are another rank's, whose files they might overwrite.
        released = [w for w in self._workers.values() if w.leaving and not w.failed and w.rank >= 0]
        leaving = [w for w in released if w.alive and end.patient]
        for worker in self._workers.values():
            if worker.alive and worker not in leaving:
                self._ask_to_end(worker, end.number)
        await self._all_ended(self._config.timeouts.stop)
        if end.exit_code == 0 and (slow := [w.label for w in leaving if w.alive]):
            self._say(agents.EXIT_HANDLERS(workers=", ".join(slow), seconds=self._config.timeouts.alone))
            await self._all_ended(self._config.timeouts.alone)
        for worker in leaving:
            if worker.alive:
                self._ask_to_end(worker, end.number)
        await self._all_ended(self._config.timeouts.stop)
        for worker in self._workers.values():
            if worker.alive:
                processes.signal_group(worker.pid, signal.SIGKILL)
        self.hurry.clear()
        await self._all_ended(5.0)

    def cut_off(self) -> End | None:
        """Return the job's end if a process failed although its script had ended well: threads, exit handlers or finalizers failed."""
        ended = [w for w in self._workers.values() if w.finished and w.leaving and not w.failed and w.ours]
        bad = [(w, w.ending) for w in ended if w.ending is not None and w.ending.exit_code != 0]
        if not bad:
            return None
        how = ", ".join(f"{worker.label} with {ending.detail}" for worker, ending in bad)
        return End(bad[0][1].exit_code, agents.CUT_OFF(how=how))

    def _ask_to_end(self, worker: Worker, number: signal.Signals) -> None:
        """Signal a rank without its data loaders and other processes that it has started: it may need them until it has saved."""
        if worker.rank < 0:
            processes.signal_group(worker.pid, signal.SIGKILL)
            return
        processes.signal_one(worker.pidfd, number)
        processes.signal_group(worker.pid, signal.SIGCONT)  # a stopped process would not receive the other signal

    async def _all_ended(self, patience: float) -> None:
        limit = self._loop.time() + patience
        hurry = self._loop.create_task(self.hurry.wait())
        while any(worker.alive for worker in self._workers.values()) and not self.hurry.is_set():
            left = limit - self._loop.time()
            if left <= 0:
                break
            self.exits.clear()
            exits = self._loop.create_task(self.exits.wait())
            await asyncio.wait({exits, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            exits.cancel()
        hurry.cancel()

"""Kill the processes that workers have started and that outlive them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from understudy.agent import processes
from understudy.agent.config import AgentConfig
from understudy.agent.descendants import ROUND, Process, kill_round
from understudy.agent.worker import Worker
from understudy.messages import starting

FAST_CLEANING = 3.0  # seconds after which processes that do not end are reported, and left


class Strays:
    """Kills strays. `own`: pids that are never touched here."""

    def __init__(self, config: AgentConfig, own: set[int], say: Callable[[str], None]) -> None:
        self.taken_up = False  # some workers were adopted from an earlier agent, and so are not below this process
        self._config = config
        self._own = own
        self._say = say

    async def of(self, worker: Worker) -> None:
        """Kill all strays of this worker."""
        await self._clean(lambda process: processes.left_by(self._config, worker.name, worker.pid, process))

    async def of_all(self) -> None:
        await self._clean(lambda process: not self.taken_up or processes.of_run(self._config, process))

    async def _clean(self, chosen: Callable[[Process], bool]) -> None:
        """Kill the chosen processes, round by round.

        On a thread: a busy host has thousands of processes to search, and the next commands of a recovery must not wait for that.
        """
        limit = time.monotonic() + FAST_CLEANING
        while left := await asyncio.to_thread(kill_round, chosen, self._own, self.taken_up):
            if time.monotonic() > limit:
                self._say(starting.PROCESSES_REMAIN(pids=left))
                return
            await asyncio.sleep(ROUND)

"""Decisions that wait for the journal: they are written before they are sent, however long that takes.

A restarted orchestrator knows its journal. If it did not know of a recovery that was carried out, it would decide that again,
and ranks would wait for each other forever. So if the journal cannot be written (a full disk whose reserve is used up, a database that is
not available, no majority of the orchestrators), a recovery waits: the job *pauses*. Its ranks keep their state, its timers stop, and it
resumes by itself when the decision is written. Plain training, and the end of the job, do not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from understudy.core.commands import Command, Drill, Prepare
from understudy.orchestrator.journal import JobJournal

LATE = 1.0  # seconds that a decision may wait before the job counts as paused


class _Decision:
    def __init__(self, commands: list[Command], late: asyncio.TimerHandle | None = None) -> None:
        self.commands = commands
        self.late = late
        self.pauses = False


class Decisions:
    """The pending decisions of one job; belongs to the running event loop.

    `send` gets each decision once it is written. The job pauses while it waits for a command that it `needs`. `paused` and `resumed` are
    called when that begins, and when it is over, just before the decision is sent.
    """

    def __init__(
        self,
        journal: JobJournal,
        send: Callable[[list[Command]], None],
        needs: Callable[[Command], bool],
        paused: Callable[[], None],
        resumed: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._send = send
        self._needs = needs
        self._paused = paused
        self._resumed = resumed
        self._waiting: list[_Decision] = []

    @property
    def pause(self) -> bool:
        """Return whether the job waits for the journal."""
        return any(decision.pauses for decision in self._waiting)

    def prepares(self) -> bool:
        """Return whether a spare's set-up waits to be sent. The job does not need it, so it does not pause for that."""
        return any(isinstance(command, Prepare) for decision in self._waiting for command in decision.commands)

    def send_when_written(self, commands: list[Command]) -> None:
        """Send these commands when everything that was given to the journal so far is written."""
        loop = asyncio.get_running_loop()
        decision = _Decision(commands)
        decision.late = loop.call_later(LATE, self._too_late, decision)
        self._waiting.append(decision)

        def written() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._written, decision)

        self._journal.mark(written)

    def cancel(self) -> None:
        """Drop what waits, because the job is over."""
        for decision in self._waiting:
            if decision.late is not None:
                decision.late.cancel()
        self._waiting.clear()

    def _too_late(self, decision: _Decision) -> None:
        """Drop a drill that is late: it would stop its rank in vain, and without it the drill ends after its time limit."""
        before = self.pause
        decision.commands = [command for command in decision.commands if not isinstance(command, Drill)]
        decision.pauses = any(self._needs(command) for command in decision.commands)
        if self.pause and not before:
            self._paused()

    def _written(self, decision: _Decision) -> None:
        if decision not in self._waiting:
            return
        before = self.pause
        self._waiting.remove(decision)
        if decision.late is not None:
            decision.late.cancel()
        if before and not self.pause:
            self._resumed()
        self._send(decision.commands)

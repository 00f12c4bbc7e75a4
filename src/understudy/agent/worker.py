"""The agent's record of one worker."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field, replace

from understudy.agent.link import WorkerLink
from understudy.agent.output import Route
from understudy.agent.processes import Ending
from understudy.common.page_view import Activity, PageView, line_of, whereabouts
from understudy.core import events
from understudy.core.commands import Command
from understudy.core.model import LossCause
from understudy.links.page import PageReader
from understudy.links.replay_buffer import ReplayBuffer


@dataclass
class Worker:
    name: str
    pid: int
    pidfd: int
    route: Route
    ours: bool = True  # False: an agent before this one has started it
    link: WorkerLink | None = None  # None until it has introduced itself
    kept: deque[Command] = field(default_factory=deque)  # for it, until then
    page: PageReader | None = None
    alive: bool = True
    rank: int = -1
    leaving: bool = False  # released, or its script failed: its exit is not a loss
    failed: bool = False  # its script failed: it waits to be ended
    fenced: bool = False  # the orchestrator has had it killed: it is not part of the job
    silent: bool = False  # it has closed its link
    refused: int = 0  # number of its lines that were not messages
    started: events.WorkerStarted | None = None
    warm: events.WorkerWarm | None = None
    lost: events.WorkerLost | None = None
    finished: bool = False  # its script has ended well
    ending: Ending | None = None  # of its process
    failing: events.ScriptFailed | None = None  # its script has failed, and the process is still ending
    replay_buffer: ReplayBuffer = field(default_factory=ReplayBuffer)

    def tell(self, command: Command) -> None:
        if self.link is None:
            self.kept.append(command)
        else:
            self.link.send(command)

    def remember(self, event: events.Event) -> None:
        if isinstance(event, events.WorkerWarm):
            self.warm = event
        self.replay_buffer.remember(event)

    def resync_events(self) -> list[events.Event]:
        """Return the events that an orchestrator needs about this worker, in order."""
        if self.lost is not None:
            return [*self.replay_buffer.events, self.lost]
        if not self.alive:
            return list(self.replay_buffer.events)
        warm = replace(self.warm, rank=self.rank) if self.warm is not None else None
        return [event for event in (self.started, warm, *self.replay_buffer.events) if event is not None]

    def ended_well(self, ending: Ending) -> bool:
        """Return whether it has exited with code 0 where a script may end: outside of transactions. Many scripts call
        `os._exit(0)` there.
        """
        view = self.look()
        outside = view is None or view.activity in (Activity.SETUP, Activity.IDLE)
        mine = self.rank >= 0 and not (self.finished or self.leaving or self.failing)
        return mine and outside and (ending.cause, ending.exit_code) == (LossCause.EXITED, 0)

    def look(self) -> PageView | None:
        if self.page is None:
            return None
        with contextlib.suppress(ValueError):  # an invalid activity: another process wrote to the file
            return self.page.read()
        return None

    def whereabouts(self) -> str:
        """Describe the position of a rank when it was lost, or "": its page outlives it."""
        view = self.look()
        if view is None or self.rank < 0:
            return ""
        place = whereabouts(view)
        return f", {place}{line_of(view)}" if place else ""

    @property
    def label(self) -> str:
        return f"rank {self.rank} {self.name}" if self.rank >= 0 else self.name

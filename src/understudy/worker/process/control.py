"""The worker's connection to its agent, and the thread that listens on it.

The thread owns the socket. Between beats it sleeps in `poll`; when an `Abort` arrives it breaks the communicators at once, from here,
because the main thread may be blocked inside one. The main thread reads the outcome in `newer`, and waits for commands with `wait_for`.
If the agent's end closes, the agent is dead: training goes on, and the thread looks for the agent that is started in its place
(`links.reattach`). A worker must not live on alone, though: if no agent comes, it ends itself.

Commands of an older generation than one already seen are dropped. A repeated `Abort` is answered again, until its recovery is decided:
after that, it is dropped.

The page of a worker that makes no progress shows for how many operations it waits for others. That distinguishes a hung one from those
that wait for it (`detectors.hang`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from understudy.common.bounds import bounded
from understudy.core.commands import Abort, Assign, Command, Drill, DrillOver, Pause, Prepare, Publish, Recover, Release
from understudy.core.events import Event, Quiesced, WorkerWarm
from understudy.core.model import Position, VotePhase
from understudy.links import reattach
from understudy.links.framing import LineReader
from understudy.links.lifeline import Lifeline
from understudy.links.messages import BadMessage, decode, encode
from understudy.links.page import PageWriter
from understudy.links.replay_buffer import ReplayBuffer
from understudy.messages import worker_processes
from understudy.worker.process.wait_probe import WaitProbe

Announcement = Abort | Pause


class Handlers(Protocol):
    """What the control thread may call. Everything here runs on the control thread and must not block for long."""

    def break_communicators(self, abort: Abort) -> None: ...

    def called(self) -> None:
        """Handle that a spare that is being prepared has a rank, or has a new address to ask."""
        ...

    def publish(self, generation: int, store: str, ranks: tuple[int, ...]) -> None: ...

    def publish_rest(self, abort: Abort) -> None: ...

    def collectives(self) -> int: ...

    def waits(self, still: float) -> int:
        """Return the number of operations for which this process waits for others, or `UNKNOWN`. `still`: seconds without progress."""
        ...

    def at_work(self) -> bool | None:
        """Return as `OwnTime` requires, on a separate thread."""
        ...

    def own_share(self) -> float | None:
        """Return as `OwnTime` requires, on a separate thread, if devices are timed."""
        ...

    def answers_alone(self, abort: Abort) -> Event | None:
        """Return the answer to an abort while the main thread is still in the script's set-up, else None."""
        ...


class Control:
    def __init__(
        self,
        connection: socket.socket,
        worker: str,
        page: PageWriter,
        lifeline: Lifeline,
        outputs: tuple[int, int],
        folder: Path,
        beat: float = 0.2,
    ) -> None:
        """Take the connection. `outputs`: where stdout and stderr can be read, for the next agent. `folder`: where agents listen for
        workers.
        """
        self.worker = worker
        self._outputs = outputs
        self._folder = folder
        self.page = page
        self._lifeline = lifeline
        self._served = threading.Event()
        self.handlers: Handlers | None = None  # before the script joins there are none
        self.generation = -1  # the newest generation that this worker knows
        self.assignment: Assign | None = None
        self.preparation: Prepare | None = None  # the newest
        self.announcement: Announcement | None = None  # the newest Abort or Pause
        self.recovery: Recover | None = None  # the newest Recover
        self.released: Release | None = None
        self.drill: Drill | None = None  # the newest
        self.drill_over = 0  # number of the newest drill that is known to be over
        self._quiesced: Quiesced | None = None  # the last answer, sent again if an orchestrator that was restarted asks again
        self._warm: WorkerWarm | None = None
        self._replay = ReplayBuffer()
        self._connection = connection
        self._beat = beat
        self._issued, self._issued_at = 0, 0.0  # collectives, and when that number was first seen
        self._probe = WaitProbe(page)
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._listen, name="understudy-control", daemon=True)

    @property
    def role(self) -> Assign | Prepare | None:
        """Return the rank as which the script runs here."""
        return self.assignment or self.preparation

    def serve(self, handlers: Handlers) -> None:
        """Call these handlers on the control thread from now on."""
        self.handlers = handlers

    def start(self) -> None:
        self._thread.start()
        self._served.wait()

    def at_work(self) -> bool | None:
        """Return whether this worker waits for no other one; None if that is not known, or not yet."""
        handlers = self.handlers
        return handlers.at_work() if handlers is not None else None

    def own_share(self) -> float | None:
        """Return the part of a transaction in which this worker's device waited for no other one; None if none was measured since the last
        call.
        """
        handlers = self.handlers
        return handlers.own_share() if handlers is not None else None

    def send(self, event: Event) -> None:
        """Send an event. Without an agent, what matters of it is kept for the next one. Texts are cut to fit: no other process may be
        there to report it.
        """
        event = bounded(event)
        if isinstance(event, Quiesced):
            self._quiesced = event
        with self._sending:
            if isinstance(event, WorkerWarm):
                self._warm = event
            self._replay.remember(event)
            self._say(event)

    def _say(self, event: Event) -> None:
        with contextlib.suppress(OSError):  # the agent is gone, which `_listen` is about to notice
            self._connection.sendall(encode(event).encode() + b"\n")

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait on the main thread until a command makes `predicate` true; return False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout)

    def wake(self) -> None:
        """Let `wait_for` check again."""
        with self._changed:
            self._changed.notify_all()

    def _reattach(self) -> None:
        """Find the agent that is started in place of the one that is gone, and send it everything."""
        limit = time.monotonic() + reattach.AWAY
        while True:
            given = self.assignment
            rank, environment = (given.rank, given.environment) if given is not None else (-1, {})
            who = reattach.Introduction(self.worker, rank, self.generation, environment, self.released is not None)
            try:
                link = reattach.meet(self._folder, who, self._outputs)
                break
            except OSError:
                if time.monotonic() > limit:
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(reattach.RETRY)
            self._show()
        with self._sending:
            self._connection.close()
            self._connection = link
            if self._warm is not None:
                self._say(replace(self._warm, rank=rank))
            for event in self._replay.events:
                self._say(event)

    def _listen(self) -> None:
        self._lifeline.hold()  # this thread lives as long as the process
        self._served.set()
        incoming = LineReader()
        while True:
            readable = self._wait()
            self._show()
            if not readable:
                continue
            try:
                data = self._connection.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self._reattach()
                incoming = LineReader()
                continue
            for line in incoming.feed(data):
                try:
                    message = decode(line if line is not None else b"")
                except BadMessage as error:
                    print(f"understudy: {worker_processes.MESSAGE_IGNORED(worker=self.worker, error=error)}", flush=True)
                    continue
                self._handle(message)  # type: ignore[arg-type]

    def _wait(self) -> bool:
        """Sleep for a beat, or until something can be read. By poll: a script may have so many files open that select refuses a number."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(self._beat * 1000))

    def _show(self) -> None:
        """Show a beat on the page."""
        handlers = self.handlers
        if handlers is None:
            return self.page.beat(0, self._probe.waits(self.page.since, None))
        issued = handlers.collectives()
        if issued != self._issued:
            self._issued, self._issued_at = issued, time.monotonic()
        self.page.beat(issued, self._probe.waits(max(self._issued_at, self.page.since), handlers.waits))

    def _handle(self, command: Command) -> None:
        if isinstance(command, Publish):
            if self.handlers:
                self.handlers.publish(command.generation, command.store, command.ranks)
            return
        if isinstance(command, Drill):
            if command.generation >= self.generation:
                self.drill = command
                self.wake()
            return
        if isinstance(command, DrillOver):
            self.drill_over = max(self.drill_over, command.number)
            self.wake()
            return
        if isinstance(command, Abort | Pause | Recover | Assign | Prepare):
            if command.generation < self.generation:
                return
            if isinstance(command, Assign | Prepare):
                self._refuse_another(command)
            if isinstance(command, Abort | Pause):
                if self.recovery is not None and self.recovery.generation >= command.generation:
                    return  # repeated: the generation that it asks for is at work, and it would break the communicators of that generation
                if self._quiesced is not None and self._quiesced.generation == command.generation:
                    self.send(self._quiesced)  # an orchestrator that was started again asks, perhaps with another text
                    if isinstance(command, Abort) and self.handlers:
                        self.handlers.publish(command.generation, command.store, command.lost)
                    return
            self.generation = command.generation
            with self._sending:
                self._replay.enter(command.generation)
        self._keep(command)
        if isinstance(command, Assign | Prepare) and self.handlers:
            self.handlers.called()
        if isinstance(command, Abort):
            self._abort(command)

    def _keep(self, command: Command) -> None:
        """Keep a command for the main thread, and wake it."""
        with self._changed:
            if isinstance(command, Assign):
                self.assignment = command
                self.page.assigned(command.rank)
            elif isinstance(command, Prepare):
                self.preparation = command
            elif isinstance(command, Abort | Pause):
                self.announcement = command
            elif isinstance(command, Recover):
                self.recovery = command
            elif isinstance(command, Release):
                self.released = command
            self._changed.notify_all()

    def _abort(self, command: Abort) -> None:
        if self.handlers is None:  # the script has not joined, and may never: nothing was done yet
            if self.assignment is not None and not self.assignment.newcomer:  # no rank waits for a newcomer that sets up
                self.send(Quiesced(self.worker, command.generation, Position(-1, VotePhase.RUNNING), (), 0))
            return
        self.handlers.break_communicators(command)
        answer = self.handlers.answers_alone(command)
        if answer is not None:
            self.send(answer)
        self.handlers.publish(command.generation, command.store, command.lost)

    def _refuse_another(self, command: Assign | Prepare) -> None:
        """End this process if it is prepared for another rank, or another place on the node. An orchestrator that was killed may not have
        recorded that.
        """
        ready = self.preparation
        place = "LOCAL_RANK"
        if ready is not None and (ready.rank, ready.environment[place]) != (command.rank, command.environment[place]):
            text = worker_processes.CANNOT_TAKE(worker=self.worker, ready=ready.rank, rank=command.rank)
            print(f"understudy: {text}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

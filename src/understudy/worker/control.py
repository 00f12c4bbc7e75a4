"""The worker's line to its agent, and the thread that listens on it.

The thread owns the socket. Between beats it sleeps in `select`; when an `Abort` arrives it breaks the communicators at once,
from here, because the main thread may be blocked inside one. The main thread reads the outcome in `newer`, and waits for
commands with `wait_for`. If the agent's end closes, the agent is dead: the worker must not live on alone, and ends itself.

Commands of an older generation than one already seen are dropped.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from understudy.core.commands import Abort, Assign, Command, Pause, Publish, Recover, Release
from understudy.core.events import Event, Quiesced
from understudy.links.lifeline import Lifeline
from understudy.links.messages import BadMessage, decode, encode
from understudy.links.page import PageWriter

Announcement = Abort | Pause


class Responder(Protocol):
    """What the control thread may call. Everything here runs on the control thread and must not block for long."""

    def break_communicators(self, abort: Abort) -> None: ...

    def publish(self, generation: int, store: str, ranks: tuple[int, ...]) -> None: ...

    def collectives(self) -> int: ...

    def answers_alone(self, abort: Abort) -> Event | None:
        """The answer to an abort while the main thread is still in the script's set-up, else None."""
        ...


class Control:
    def __init__(self, connection: socket.socket, worker: str, page: PageWriter, lifeline: Lifeline, beat: float = 0.2) -> None:
        self.worker = worker
        self.page = page
        self._lifeline = lifeline
        self._held = threading.Event()
        self.responder: Responder | None = None
        self.generation = -1  # the newest generation that this worker has heard of
        self.assignment: Assign | None = None
        self.announcement: Announcement | None = None  # the newest Abort or Pause
        self.recovery: Recover | None = None  # the newest Recover
        self.released: Release | None = None
        self._quiesced: Quiesced | None = None  # the last answer, repeated if an orchestrator that was restarted asks again
        self._connection = connection
        self._beat = beat
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._listen, name="understudy-control", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._held.wait()

    def send(self, event: Event) -> None:
        if isinstance(event, Quiesced):
            self._quiesced = event
        data = encode(event).encode() + b"\n"
        with self._sending:
            try:
                self._connection.sendall(data)
            except OSError:
                self._orphaned()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits on the main thread until a command makes `predicate` true; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout)

    def wake(self) -> None:
        """Lets `wait_for` look again."""
        with self._changed:
            self._changed.notify_all()

    def _orphaned(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _listen(self) -> None:
        self._lifeline.hold()  # this thread lives as long as the process
        self._held.set()
        pending = b""
        while True:
            readable, _, _ = select.select([self._connection], [], [], self._beat)
            self.page.beat(self.responder.collectives() if self.responder else 0)
            if not readable:
                continue
            try:
                data = self._connection.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self._orphaned()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                try:
                    message = decode(line)
                except BadMessage as error:
                    print(f"understudy: {self.worker}: ignored a message of the agent: {error}", flush=True)
                    continue
                self._handle(message)  # type: ignore[arg-type]

    def _handle(self, command: Command) -> None:
        if isinstance(command, Publish):
            if self.responder:
                self.responder.publish(command.generation, command.store, command.ranks)
            return
        if isinstance(command, Abort | Pause | Recover | Assign):
            if command.generation < self.generation:
                return
            decided = self.recovery is not None and self.recovery.generation >= command.generation
            answered = self._quiesced is not None and self._quiesced.generation == command.generation
            if isinstance(command, Abort | Pause) and answered and not decided:
                assert self._quiesced is not None
                self.send(self._quiesced)  # an orchestrator that was started again asks, perhaps in other words
                if isinstance(command, Abort) and self.responder:
                    self.responder.publish(command.generation, command.store, command.lost)
                return
            self.generation = command.generation
        with self._changed:
            if isinstance(command, Assign):
                self.assignment = command
            elif isinstance(command, Abort | Pause):
                self.announcement = command
            elif isinstance(command, Recover):
                self.recovery = command
            elif isinstance(command, Release):
                self.released = command
            self._changed.notify_all()
        if isinstance(command, Abort) and self.responder:
            self.responder.break_communicators(command)
            answer = self.responder.answers_alone(command)
            if answer is not None:
                self.send(answer)
            self.responder.publish(command.generation, command.store, command.lost)

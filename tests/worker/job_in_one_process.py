"""A whole job in one process: every worker is a thread, and everything of it is real but torch's groups and the process.

Real are the machine of `core`, the workers' control threads and their lines, votes, stores, connections, donors and newcomers. Not real:

- a worker's process is a thread. It dies at a named point of the runtime (`understudy.worker.hooks`): nothing of its script runs any more,
  its line and its connections are closed, and its agent reports it as killed.
- collectives of the script add up in memory (`Groups`), and fail for those that wait when a peer is lost.
- the set-up of the script is not recorded, and a newcomer does not run it.
- a drill records and replays the sums in memory in place of torch's collectives.

A script is a function of its `Rank`: see `Script`.
"""

from __future__ import annotations

import gc
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.worker import groups_in_memory
from tests.worker.worker_in_one_process import LIMIT, Gone, Script, Worker, here, stacks

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, LossCause, Timeouts
from understudy.links.framing import LineReader
from understudy.links.messages import decode, encode
from understudy.worker import hooks
from understudy.worker.errors import PeerLost


@dataclass(frozen=True)
class Loss:
    """The rank, or the spare that is prepared for it (`SPARE_OF`), dies when it reaches this point of the runtime for the `time`-th time,
    in whatever worker.
    """

    rank: int
    point: str
    time: int = 1


@dataclass(frozen=True)
class Cut:
    """The rank notices in its `time`-th vote, at this point of it, that a connection broke. All ranks are in that vote."""

    rank: int
    point: str
    time: int = 1


@dataclass(frozen=True)
class Ask:
    """A request to the orchestrator when the rank reaches this point for the `time`-th time: for a move or a drill, again and again until
    it is not refused.
    """

    rank: int
    point: str
    event: events.Event
    time: int = 1


Happens = Loss | Cut | Ask


class Job:
    """A job to `run` once. `states`: of every rank, when its script has ended. `reported`: the messages of the job."""

    def __init__(
        self,
        folder: Path,
        size: int,
        script: Script,
        iterations: int,
        each: int = 1,
        happens: tuple[Happens, ...] = (),
        *,
        spares: int | None = None,
        replenish: bool = False,
    ) -> None:
        """`each`: transactions of an iteration. `happens`: each has a spare of its own, unless `spares` gives their number.
        `replenish`: as of `JobSpec`. `answers`: what is asked whenever the job prints a message with this code."""
        self.folder, self.size, self.script, self.iterations, self.each = folder, size, script, iterations, each
        self.happens = happens
        self.answers: dict[str, events.Event] = {}
        self.devices: dict[int, str] = {}  # of ranks, as reported by the first workers that have them
        self.states: dict[int, dict[str, bytes]] = {}
        self.struck: list[Happens] = []
        self.failures: list[BaseException] = []
        self.reported: list[str] = []
        self.ended: tuple[int, str] | None = None
        self.over = threading.Event()
        self.machine = Machine(
            JobSpec("job", size, size, spares=(len(happens) or 1) if spares is None else spares, replenish=replenish), Timeouts()
        )
        self._workers: dict[str, Worker] = {}
        self._reached: Counter[tuple[int, str]] = Counter()
        self._woken, self._wake = socket.socketpair()
        self._died: list[Worker] = []
        self._asked: list[events.Event] = []
        self._lock = threading.Lock()
        self._voting = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def run(self) -> Job:
        """Raises what a worker's thread or the orchestrator's raises, and `AssertionError` if the job does not end."""
        groups_in_memory.start(self.size)
        stock = hooks.fire

        def fire(point: str, **context: Any) -> None:
            self._reach(point)
            stock(point, **context)

        hooks.fire = fire
        try:
            self._run()
        finally:
            hooks.fire = stock
        return self

    def _run(self) -> None:
        self._start(self._serve)
        if not self.over.wait(LIMIT):
            raise AssertionError(
                f"the job hangs; {[str(loss) for loss in self.struck]} struck; it has said {self.reported}; {self._state()}"
            )
        for worker in list(self._workers.values()):
            self._close(worker)
        for thread in self._threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), f"a worker's thread has not ended; {stacks()}"
        for worker in self._workers.values():
            worker.release()
        for end in (self._woken, self._wake):
            end.close()
        gc.collect()  # stores and pages are closed when they are freed
        if self.failures:
            raise self.failures[0]

    def _state(self) -> str:
        state = self.machine.state
        waiting = sorted(state.recovery.waiting) if state.recovery is not None else []
        workers = {name: (str(worker.state), worker.rank) for name, worker in state.workers.items()}
        return f"{state.phase} in generation {state.generation}, waits for {waiting}; {workers}; refused: {state.refused}"

    def _reach(self, point: str) -> None:
        worker: Worker | None = getattr(here, "worker", None)
        if worker is None or worker.job is not self:
            return
        if worker.ended:
            raise Gone
        with self._lock:
            self._reached[worker.number, point] += 1
            self._voting.notify_all()
            now = worker.number, point, self._reached[worker.number, point]
            due = [one for one in self.happens if (one.rank, one.point, one.time) == now]
            self.struck += due
            self._asked += [one.event for one in due if isinstance(one, Ask)]
        if any(isinstance(one, Loss) for one in due):
            raise Gone
        if due:
            self._nudge()
        if any(isinstance(one, Cut) for one in due):
            time = now[2]
            with self._voting:
                assert self._voting.wait_for(lambda: all(self._reached[rank, "vote"] >= time for rank in range(self.size)), LIMIT)
            raise PeerLost("a connection broke")

    def died(self, worker: Worker) -> None:
        """On its thread."""
        worker.ended = True
        if worker.rank is not None:
            worker.rank.runtime.membership.groups.abort()
            worker.hang_up()
            for peers in worker.peers:
                peers.close()
        with self._lock:
            self._died.append(worker)
        self._nudge()

    def _nudge(self) -> None:
        with suppress(OSError):
            self._wake.send(b"x")

    # -- the agent and the orchestrator, on one thread ---------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._submit(events.NodeJoined("n0", "127.0.0.1", 0))
            readers: dict[str, LineReader] = {}
            while not self.over.is_set():
                lines = {worker.theirs: worker for worker in self._workers.values() if worker.theirs.fileno() >= 0}
                for one in readable([self._woken, *lines]):
                    if one is self._woken:
                        self._woken.recv(100)
                        self._bury()
                    elif (worker := lines[one]) and not worker.ended:
                        for line in readers.setdefault(worker.name, LineReader()).feed(one.recv(1 << 16)):
                            self._submit(decode(line or b""))  # type: ignore[arg-type]
                self._answer()
        except BaseException as error:
            if self.over.is_set() and isinstance(error, OSError):
                return  # the lines are being closed
            self.failures.append(error)
            self.over.set()

    def _bury(self) -> None:
        with self._lock:
            dead, self._died = self._died, []
        for worker in dead:
            self._close(worker)
            self._submit(events.WorkerLost(worker.name, LossCause.KILLED, "killed", time.time()))

    def _answer(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, []
        for event in asked:
            refused = (isinstance(event, events.MigrationAsked) and self.machine.migration_refusal(event.rank)) or (
                isinstance(event, events.DrillAsked) and self.machine.drill_refusal(event.rank)
            )
            self._asked.append(event) if refused else self._submit(event)

    def _close(self, worker: Worker) -> None:
        worker.ended = True
        with suppress(OSError):
            worker.theirs.shutdown(socket.SHUT_RDWR)
        worker.theirs.close()
        if hasattr(worker, "control"):
            worker.control.wake()
        worker.hang_up()

    def _submit(self, event: events.Event) -> None:
        for command in self.machine.handle(event, time.time()):
            self._do(command)

    def _do(self, command: commands.Command) -> None:
        if isinstance(command, commands.StartWorker):
            ours, theirs = socket.socketpair()
            worker = self._workers[command.worker] = Worker(command.worker, self, ours, theirs)
            self._start(worker.run)
            self._submit(events.WorkerStarted(worker.name, command.node, None))
        elif isinstance(command, commands.EndJob):
            self.ended = command.exit_code, command.message
            self.over.set()
        elif isinstance(command, commands.Tell):
            self.reported.append(command.text)
            if answers := [event for code, event in self.answers.items() if code in command.text]:
                self._asked += answers
                self._nudge()
        elif isinstance(command, commands.SetTimer):
            if command.timer == "communication" and self.struck and isinstance(self.struck[-1], Cut):
                self._submit(events.Expired(command.timer))  # no loss will explain it
        elif isinstance(command, commands.KillWorker):
            self._close(self._workers[command.worker])
        elif (to := getattr(command, "worker", None)) is not None and not self._workers[to].ended:
            with suppress(OSError):
                self._workers[to].theirs.sendall(encode(command).encode() + b"\n")


def readable(sockets: list[socket.socket]) -> list[socket.socket]:
    """Wait until some of these have something to read. They may be among thousands of open files, which `select` cannot take."""
    poll, by_number = select.poll(), {one.fileno(): one for one in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(1000)]

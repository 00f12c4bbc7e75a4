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
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from tests.worker import groups_in_memory
from tests.worker.groups_in_memory import Groups, sums_of
from torch import nn

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, LossCause, Timeouts
from understudy.links.framing import LineReader
from understudy.links.lifeline import Lifeline
from understudy.links.messages import decode, encode
from understudy.links.page import PageWriter
from understudy.worker import hooks
from understudy.worker.collectives.interception import Kernels
from understudy.worker.drill import spare_drill
from understudy.worker.drill.step_replay import StepRecorder, StepReplayer
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.participant import Participant
from understudy.worker.process.control import Control
from understudy.worker.recovery import donor, newcomer
from understudy.worker.state.unregistered import NoUnregisteredState
from understudy.worker.step import order, runtime
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import StoreServer

LIMIT = 240.0  # seconds for a whole job
DTYPE = torch.float64
SPARE_OF = 100  # and a rank: the number of the spare that is prepared for it


class Gone(BaseException):
    """This worker's process has ended."""


def left(exit_code: int) -> NoReturn:
    raise Gone


@dataclass(frozen=True)
class Loss:
    """The rank, or the spare that is prepared for it (`SPARE_OF`), dies when it comes to this point of the runtime for the `time`-th time,
    in whatever worker."""

    rank: int
    point: str
    time: int = 1


@dataclass(frozen=True)
class Ask:
    """When the rank comes to this point for the `time`-th time, somebody asks the orchestrator for something: for a move or a drill again
    and again, until it is not refused."""

    rank: int
    point: str
    event: events.Event
    time: int = 1


class QuietControl(Control):
    """One whose threads end when the agent closes the line, which it does because the worker is dead."""

    gone: Callable[[], bool] = staticmethod(lambda: False)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        found = super().wait_for(lambda: self.gone() or condition(), timeout)
        if self.gone():
            raise Gone
        return found

    def _listen(self) -> None:
        with suppress(Gone):
            super()._listen()

    def _reattach(self) -> None:
        raise Gone


_here = threading.local()  # the worker whose thread this is


class Count:
    """A value of the script's own."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


class Rank:
    """What a script has of its worker. All that it trains is the same in every run of as many ranks."""

    def __init__(self, runtime: runtime.Runtime) -> None:
        self.runtime, self.number = runtime, runtime.progress.rank
        self.net: Any = nn.utils.skip_init(nn.Linear, 3, 2, dtype=DTYPE)  # type: ignore[no-untyped-call]  # nothing is drawn: all ranks have one stream of torch
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.copy_(torch.arange(parameter.numel(), dtype=DTYPE).reshape(parameter.shape) / 7)
        self.net.register_buffer("mean", torch.zeros(3, dtype=DTYPE))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.count = Count()
        self.dice = torch.Generator().manual_seed(100 + self.number)
        for name, thing in (("net", self.net), ("optimizer", self.optimizer), ("count", self.count), ("dice", self.dice)):
            runtime.state.register(name, thing)

    @property
    def transactions(self) -> int:
        """How many are committed."""
        return max(0, self.runtime.progress.transaction)

    @property
    def groups(self) -> Groups:
        groups = self.runtime.membership.groups
        assert isinstance(groups, Groups)
        return groups

    def transaction(self, function: Callable[[], Any], kind: str = "step") -> Any:
        return self.runtime.transactions.run(function, kind, (), {})

    def step_optimizer(self) -> None:
        self.runtime.transactions.before_optimizer_step(self.optimizer, (), {})
        self.optimizer.step()
        hooks.fire("stepped")

    def state(self) -> dict[str, bytes]:
        """All that the script has trained, as bytes."""
        tensors = {name: tensor for name, tensor in self.runtime.state.all_tensors().items() if not name.endswith("/gradient")}
        tensors["dice"] = self.dice.get_state()
        found = {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}
        return {**found, "count": str(self.count.value).encode()}


Script = Callable[[Rank, int], None]  # one iteration, by its number; a newcomer begins with that in which the job goes on


@dataclass
class Worker:
    name: str
    job: Job
    ours: socket.socket
    theirs: socket.socket
    rank: Rank | None = None
    number: int = -1
    ended: bool = False
    control: Control = field(init=False)
    server: StoreServer = field(init=False)

    def run(self) -> None:
        _here.worker = self
        try:
            self._live()
        except Gone:
            self.job.died(self)
        except BaseException as error:
            self.job.failures.append(error)
            self.job.over.set()

    def _live(self) -> None:
        page = PageWriter(self.job.folder / f"{self.name}.page")
        self.control = control = QuietControl(self.ours, self.name, page, Lifeline(None), (-1, -1), self.job.folder)
        control.gone = lambda: self.ended
        control.start()
        self.server = StoreServer("127.0.0.1")
        control.send(events.WorkerWarm(self.name, self.server.address))
        control.wait_for(lambda: control.role is not None or control.released is not None)
        given = control.role
        if given is None:
            return
        first = isinstance(given, commands.Assign) and not given.newcomer
        self.number = given.rank if isinstance(given, commands.Assign) else SPARE_OF + given.rank
        if first and (device := self.job.devices.get(given.rank)):
            control.send(events.UsesDevice(self.name, device))
        made = runtime.Runtime(control, given, self.server, None if first else FileAccessGuard(), Worker.run.__code__)
        self.rank = Rank(made)
        if isinstance(given, commands.Assign) and first:
            self._set_up(given, made)
        else:
            self._take_over(given, made)
        while self.rank.transactions < self.job.iterations * self.job.each:
            self.job.script(self.rank, self.rank.transactions // self.job.each)
        self.job.states[self.number] = self.rank.state()
        made.finish()

    def release(self) -> None:
        """What is open is closed, once the worker's thread has ended."""
        if self.rank is not None and self.rank.runtime.membership.peers is not None:
            self.rank.runtime.membership.peers.close()
        self.control._thread.join(LIMIT)
        self.ours.close()
        self.rank = None
        del self.control, self.server

    def _set_up(self, given: commands.Assign, made: runtime.Runtime) -> None:
        membership, size = made.membership, made.progress.world_size
        groups: Any = membership.groups
        setup: Any = made._setup
        meeting = membership.meet(given.store, given.generation)
        groups.join(given.rank, sums_of(given.generation))
        setup._recorder = _NoRecord()
        membership.peers = Peers(meeting, given.rank)
        membership.open_channel(membership.peers, membership.peers.meet(range(size)))
        membership.new_buddies.clear()
        made.progress.generation = given.generation
        made.handlers.in_setup = True

    def _take_over(self, given: commands.Assign | commands.Prepare, made: runtime.Runtime) -> None:
        newcomer: Any = made.newcomer
        made.membership.groups._rank = given.rank  # type: ignore[attr-defined]
        made.membership.record = newcomer._fetching.record()
        newcomer._replayer = _NoRecord()
        newcomer._learn()
        if self.control.assignment is not None:
            self.number = given.rank
        newcomer.arrive()


class _NoRecord:
    """In the place of the record of a set-up."""

    given_up = 0

    def moved(self, tensors: Any) -> bool:
        return False

    def finish(self, *given: Any) -> bytes:
        return b"a record"

    def differences(self, storages: Any) -> list[str]:
        return []

    def remove(self) -> None: ...


class Job:
    """`run` it once. `states`: of every rank, when its script has ended. `told`: what the job has said."""

    def __init__(
        self,
        folder: Path,
        size: int,
        script: Script,
        iterations: int,
        each: int = 1,
        happens: tuple[Loss | Ask, ...] = (),
        *,
        spares: int | None = None,
        replenish: bool = False,
    ) -> None:
        """`each`: transactions of an iteration. `happens`: each has a spare of its own, unless `spares` says how many there are.
        `replenish`: as of `JobSpec`. `answers`: what is asked whenever the job says something with this code."""
        self.folder, self.size, self.script, self.iterations, self.each = folder, size, script, iterations, each
        self.happens = happens
        self.answers: dict[str, events.Event] = {}
        self.devices: dict[int, str] = {}  # of ranks, as the first workers that have them say
        self.states: dict[int, dict[str, bytes]] = {}
        self.struck: list[Loss | Ask] = []
        self.failures: list[BaseException] = []
        self.told: list[str] = []
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
            raise AssertionError(f"the job hangs; {[str(loss) for loss in self.struck]} struck; it has said {self.told}; {self._state()}")
        for worker in list(self._workers.values()):
            self._close(worker)
        for thread in self._threads:
            thread.join(LIMIT)
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
        worker: Worker | None = getattr(_here, "worker", None)
        if worker is None or worker.job is not self:
            return
        if worker.ended:
            raise Gone
        with self._lock:
            self._reached[worker.number, point] += 1
            now = worker.number, point, self._reached[worker.number, point]
            due = [one for one in self.happens if (one.rank, one.point, one.time) == now]
            self.struck += due
            self._asked += [one.event for one in due if isinstance(one, Ask)]
        if any(isinstance(one, Loss) for one in due):
            raise Gone
        if due:
            self._nudge()

    def died(self, worker: Worker) -> None:
        """On its thread."""
        worker.ended = True
        if worker.rank is not None:
            membership = worker.rank.runtime.membership
            membership.groups.abort()
            if membership.peers is not None:
                membership.peers.close()
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
            self.told.append(command.text)
            if answers := [event for code, event in self.answers.items() if code in command.text]:
                self._asked += answers
                self._nudge()
        elif isinstance(command, commands.KillWorker):
            self._close(self._workers[command.worker])
        elif (to := getattr(command, "worker", None)) is not None and not self._workers[to].ended:
            with suppress(OSError):
                self._workers[to].theirs.sendall(encode(command).encode() + b"\n")


def until(condition: Callable[[], bool]) -> None:
    """Wait in a script for what another thread does."""
    tick, end = threading.Event(), time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it has not come")
        tick.wait(0.002)


def stand_still() -> None:
    """Until this worker is killed."""
    worker: Worker = _here.worker
    until(lambda: worker.ended)


def readable(sockets: list[socket.socket]) -> list[socket.socket]:
    """Wait until some of these have something to read. They may be among thousands of open files, which `select` cannot take."""
    poll, by_number = select.poll(), {one.fileno(): one for one in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(1000)]


def _nothing(*given: Any) -> None: ...


def _watch_sums(kernels: Kernels) -> None:
    _groups().watch = kernels


def _watch_no_sums(kernels: Kernels) -> None:
    _groups().watch = None


def _groups() -> Groups:
    worker: Worker = _here.worker
    assert worker.rank is not None
    return worker.rank.groups


def replace_what_needs_processes(monkeypatch: Any) -> None:
    """Of torch's and of a process's own, everything that a worker needs."""
    monkeypatch.setattr(runtime, "Groups", Groups)
    monkeypatch.setattr(order, "Works", lambda tell: Participant())
    monkeypatch.setattr(donor, "leave", left)
    process = SimpleNamespace(_exit=left, environ=dict[str, str]())
    monkeypatch.setattr(newcomer, "os", process)
    monkeypatch.setattr(spare_drill, "os", process)
    monkeypatch.setattr(newcomer, "Reads", lambda *given: SimpleNamespace(install=_nothing, remove=_nothing, ours=nullcontext))
    monkeypatch.setattr(spare_drill, "patches", SimpleNamespace(wrap=_nothing))
    for kind in (StepRecorder, StepReplayer):
        monkeypatch.setattr(kind, "install", _watch_sums)
        monkeypatch.setattr(kind, "remove", _watch_no_sums)
    monkeypatch.setenv("RES_OPTIONS", "attempts:0")  # torch's stores ask for the names of addresses, which are not needed here
    monkeypatch.setattr(runtime, "Census", lambda *given: NoUnregisteredState())  # it would find the other workers

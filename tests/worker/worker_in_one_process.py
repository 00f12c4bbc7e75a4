"""One worker of a job in one process: a thread, with the process's and torch's own replaced. See `job_in_one_process`."""

from __future__ import annotations

import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from tests.worker.groups_in_memory import Groups, sums_of
from torch import nn

from understudy.core import commands, events
from understudy.links.lifeline import Lifeline
from understudy.links.page import PageWriter
from understudy.worker import hooks
from understudy.worker.collectives.interception import Kernels
from understudy.worker.devices.device_in_use import Device
from understudy.worker.drill import drill, spare_drill
from understudy.worker.drill.step_replay import StepRecorder, StepReplayer
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.participant import Participant
from understudy.worker.process.control import Control
from understudy.worker.recovery import donor, newcomer
from understudy.worker.state.unregistered import NoUnregisteredState
from understudy.worker.step import commit_report, order, runtime
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import StoreServer

if TYPE_CHECKING:
    from tests.worker.job_in_one_process import Job

LIMIT = 240.0  # seconds for a whole job
DTYPE = torch.float64
SPARE_OF = 100  # and a rank: the number of the spare that is prepared for it


class Gone(BaseException):
    """This worker's process has ended."""


def left(exit_code: int) -> NoReturn:
    raise Gone


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


here = threading.local()  # the worker whose thread this is


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

    def transaction(self, function: Callable[[], Any], kind: str = "step", reports: bool = False) -> Any:
        return self.runtime.transactions.run(function, kind, (), {}, reports)

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
    peers: list[Peers] = field(default_factory=list)  # all that it has made
    control: Control = field(init=False)
    server: StoreServer = field(init=False)

    def run(self) -> None:
        here.worker = self
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
        made = runtime.Runtime(control, given, self.server, None if first else FileAccessGuard(), {Worker.run.__code__})
        self.rank = Rank(made)
        if isinstance(given, commands.Assign) and first:
            self._set_up(given, made)
        else:
            self._take_over(given, made)
        while self.rank.transactions < self.job.iterations * self.job.each:
            self.job.script(self.rank, self.rank.transactions // self.job.each)
        self.job.states[self.number] = self.rank.state()
        made.finish()

    def hang_up(self) -> None:
        """The process has ended, and with it what its threads ask of others, and wait for."""
        if self.rank is None:
            return
        membership, watch = self.rank.runtime.membership, self.rank.runtime.watch.current
        asked = [membership.meeting, *membership.more_meetings]
        if isinstance(watch, spare_drill.SpareDrill):
            watch._lose("the spare's process has ended")
            asked.append(watch.meeting)
        elif isinstance(watch, drill.Drills) and watch._sender is not None:
            watch._sender.give_up()
        for peers in self.peers:
            peers._meeting.over = lambda: True
            peers.abort()
        for meeting in asked:
            if meeting is not None:
                meeting.close()

    def release(self) -> None:
        """What is open is closed, once the worker's thread has ended."""
        for peers in self.peers:
            peers.close()
        self.peers.clear()
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


def until(condition: Callable[[], bool]) -> None:
    """Wait in a script for what another thread does."""
    tick, end = threading.Event(), time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it has not come")
        tick.wait(0.002)


def stacks() -> str:
    """What every thread of this process does."""
    frames = sys._current_frames().values()
    return "\n\n".join("".join(traceback.format_stack(frame)[-6:]) for frame in frames)


def stand_still() -> None:
    """Until this worker is killed."""
    worker: Worker = here.worker
    until(lambda: worker.ended)


def _known_peers(stock: Callable[..., None]) -> Callable[..., None]:
    def known(self: Peers, *given: Any) -> None:
        stock(self, *given)
        if (worker := getattr(here, "worker", None)) is not None:
            worker.peers.append(self)

    return known


def _nothing(*given: Any) -> None: ...


def _watch_sums(kernels: Kernels) -> None:
    _groups().watch = kernels


def _watch_no_sums(kernels: Kernels) -> None:
    _groups().watch = None


def _groups() -> Groups:
    worker: Worker = here.worker
    assert worker.rank is not None
    return worker.rank.groups


def replace_what_needs_processes(monkeypatch: Any) -> None:
    """Of torch's and of a process's own, everything that a worker needs."""
    monkeypatch.setattr(runtime, "Groups", Groups)
    monkeypatch.setattr(commit_report, "in_use", lambda environment: Device(""))  # a torch that is built for CUDA would name a GPU
    monkeypatch.setattr(order, "Works", lambda tell: Participant())
    monkeypatch.setattr(donor, "leave", left)
    for ending in ("flush_appended", "finish_handed_over"):  # of the process, which would wait for threads of other tests
        monkeypatch.setattr(donor, ending, _nothing)
    monkeypatch.setattr(Peers, "__init__", _known_peers(Peers.__init__))
    process = SimpleNamespace(_exit=left, environ=dict[str, str]())
    monkeypatch.setattr(newcomer, "os", process)
    monkeypatch.setattr(spare_drill, "os", process)
    monkeypatch.setattr(newcomer, "Reads", lambda *given: SimpleNamespace(install=_nothing, remove=_nothing, ours=nullcontext))
    monkeypatch.setattr(spare_drill, "patches", SimpleNamespace(wrap=_nothing))
    for kind in (StepRecorder, StepReplayer):
        monkeypatch.setattr(kind, "install", _watch_sums)
        monkeypatch.setattr(kind, "remove", _watch_no_sums)
    monkeypatch.setattr(Kernels, "_stack", Kernels._stack)  # its workers end without removing theirs
    monkeypatch.setenv("RES_OPTIONS", "attempts:0")  # torch's stores ask for the names of addresses, which are not needed here
    monkeypatch.setattr(runtime, "Census", lambda *given: NoUnregisteredState())  # it would find the other workers

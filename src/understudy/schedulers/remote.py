"""Common code of schedulers that start processes on other machines and must poll their state."""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod

from understudy.messages import schedulers
from understudy.schedulers.base import Ended, Scheduler, SchedulerFailed, Work

LOOK = 1.0  # seconds between two polls


class RemoteProcess(ABC):
    """A process on another machine. A thread polls its state."""

    def __init__(self, name: str) -> None:
        self._ended: Ended | None = None
        self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._over = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=name, daemon=True).start()

    @abstractmethod
    def look(self) -> Ended | None:
        """Return how it ended; None while it runs. Raises `SchedulerFailed` if that is unknown."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None: ...

    def fileno(self) -> int:
        return self._wakes

    def ended(self) -> Ended | None:
        return self._ended

    def wait(self, seconds: float) -> bool:
        return self._over.wait(seconds)

    def close(self) -> None:
        self._closed.set()
        os.close(self._wakes)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            try:
                self._ended = self.look()
            except SchedulerFailed:  # the scheduler may come back
                continue
            if self._ended is not None:
                self._over.set()
                if not self._closed.is_set():
                    os.eventfd_write(self._wakes, 1)
                return


class RemoteLauncher(Scheduler):
    """A scheduler whose processes do not depend on the process that has started them."""

    def __init__(self) -> None:
        self._started: dict[str, RemoteProcess] = {}

    @abstractmethod
    def begin(self, work: Work) -> RemoteProcess:
        """Start a process. Raises `SchedulerFailed`, or `ValueError` if the name is taken."""

    def submit(self, job: Work) -> RemoteProcess:
        return self._start(job)

    def add_node(self, node: Work) -> RemoteProcess:
        return self._start(node)

    def _start(self, work: Work) -> RemoteProcess:
        if work.descriptors:
            raise ValueError(schedulers.NO_DESCRIPTORS(name=work.name, scheduler=self.name))
        if self.status().get(work.name) == "running":
            raise ValueError(schedulers.RUNS_ALREADY(name=work.name))
        try:
            self._started[work.name] = started = self.begin(work)
        except SchedulerFailed as error:
            raise OSError(str(error)) from error
        return started

    def drain_node(self, name: str) -> None:
        self._started[name].signal(signal.SIGTERM)

    def status(self) -> dict[str, str]:
        found = {name: each.ended() for name, each in self._started.items()}
        return {name: "running" if ended is None else ended.how for name, ended in found.items()}

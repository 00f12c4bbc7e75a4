"""Slurm as a scheduler: what it is to start runs in a job of its own on one node, and an allocation is the step that a process runs in.

What it starts does not depend on the process that has asked for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence

from understudy.schedulers.base import Allocation, Ended, Scheduler, SchedulerFailed, Work
from understudy.schedulers.slurm import commands
from understudy.schedulers.slurm.allocation import SlurmAllocation
from understudy.schedulers.slurm.step import NAME, step_of

LOOK = 1.0  # seconds


class SlurmJob:
    """A job on one node. A thread asks how it stands, once a second."""

    def __init__(self, number: str) -> None:
        self.number = number
        self._ended: Ended | None = None
        self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._over = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"slurm-job-{number}", daemon=True).start()

    def fileno(self) -> int:
        return self._wakes

    def ended(self) -> Ended | None:
        return self._ended

    def signal(self, number: signal.Signals) -> None:
        commands.run("scancel", "--quiet", "--full", f"--signal={number.name.removeprefix('SIG')}", self.number)

    def wait(self, seconds: float) -> bool:
        return self._over.wait(seconds)

    def close(self) -> None:
        self._closed.set()
        os.close(self._wakes)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            try:
                state = commands.state(self.number)
            except SchedulerFailed:  # nothing is known: it may come back
                continue
            if state in commands.OVER or not state:
                how = state.lower().replace("_", " ") or "is gone"
                self._ended = Ended(f"Slurm job {self.number} {how}", killed=state not in ("COMPLETED", "FAILED"))
                self._over.set()
                if not self._closed.is_set():
                    os.eventfd_write(self._wakes, 1)
                return


class SlurmScheduler(Scheduler):
    name = NAME

    def __init__(self) -> None:
        self._jobs: dict[str, SlurmJob] = {}

    def submit(self, job: Work) -> SlurmJob:
        return self._start(job)

    def add_node(self, node: Work) -> SlurmJob:
        return self._start(node)

    def _start(self, work: Work) -> SlurmJob:
        if work.descriptors:
            raise ValueError(f"{work.name}: what Slurm starts on another machine cannot inherit descriptors")
        if self.status().get(work.name) == "running":
            raise ValueError(f"{work.name} is running already")
        try:
            number = commands.batch(work.command, f"--job-name={work.name}", variables=work.environment)
        except SchedulerFailed as error:
            raise OSError(str(error)) from error
        self._jobs[work.name] = job = SlurmJob(number)
        return job

    def drain_node(self, name: str) -> None:
        self._jobs[name].signal(signal.SIGTERM)

    def status(self) -> dict[str, str]:
        found = {name: job.ended() for name, job in self._jobs.items()}
        return {name: "running" if ended is None else ended.how for name, ended in found.items()}

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        step = step_of(environment)
        return SlurmAllocation(step, options) if step is not None else None

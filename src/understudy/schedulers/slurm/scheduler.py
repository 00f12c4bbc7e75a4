"""Slurm as a scheduler: each process runs in a separate job on one node. An allocation is the step of this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from understudy.schedulers.base import Allocation, Ended, Work
from understudy.schedulers.remote import RemoteLauncher, RemoteProcess
from understudy.schedulers.slurm import commands
from understudy.schedulers.slurm.allocation import SlurmAllocation
from understudy.schedulers.slurm.step import NAME, step_of


class SlurmJob(RemoteProcess):
    """A Slurm job on one node."""

    def __init__(self, number: str) -> None:
        self.number = number
        super().__init__(f"slurm-job-{number}")

    def look(self) -> Ended | None:
        state = commands.state(self.number)
        if state and state not in commands.OVER:
            return None
        how = state.lower().replace("_", " ") or "is gone"
        return Ended(f"Slurm job {self.number} {how}", killed=state not in ("COMPLETED", "FAILED"))

    def signal(self, number: signal.Signals) -> None:
        commands.run("scancel", "--quiet", "--full", f"--signal={number.name.removeprefix('SIG')}", self.number)


class SlurmScheduler(RemoteLauncher):
    name = NAME

    def begin(self, work: Work) -> SlurmJob:
        return SlurmJob(commands.batch(work.command, f"--job-name={work.name}", around={**os.environ, **work.environment}))

    def allocation(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> Allocation | None:
        step = step_of(environment)
        return SlurmAllocation(step, options) if step is not None else None

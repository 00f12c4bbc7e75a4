"""The jobs of an orchestrator, by name: one for `understudy run`, any number for a service. Jobs that have ended stay readable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from understudy.common.bounds import plain
from understudy.core.events import NodeJoined
from understudy.core.machine import Machine
from understudy.detectors.base import Evidence
from understudy.links.messages import ONLY
from understudy.messages import orchestrators, service_jobs
from understudy.orchestrator.chain import Position
from understudy.orchestrator.history import History
from understudy.orchestrator.journal import Journal
from understudy.orchestrator.output import FILE, Output
from understudy.orchestrator.rows import Recorded
from understudy.orchestrator.scheduler_access import SchedulerAccess
from understudy.orchestrator.service import Service
from understudy.orchestrator.settings import Settings
from understudy.policy.rules import Policy, parse

MOST_REPORTED = 100  # number of messages that are printed once


@dataclass
class ServedJob:
    name: str
    service: Service
    output: Output | None  # None: its agents print themselves
    running: asyncio.Task[int]


class Jobs:
    def __init__(
        self,
        journal: Journal,
        tell: Callable[[str], None],
        guard: Callable[[], None] = lambda: None,
        silent_since: Callable[[int, float], float | None] = lambda node_rank, seconds: None,
    ) -> None:
        """Create the jobs. `guard` returns only while this process may decide. `silent_since`: as in `Service`."""
        self._guard = guard
        self._silent_since = silent_since
        self.journal = journal
        self.history = History(journal)
        self._tell = tell
        self._jobs: dict[str, ServedJob] = {}
        self.aside: dict[str, str] = {}  # jobs in the journal that cannot be read, and why
        self._reported: set[str] = set()
        self.single = False
        self.scheduler: SchedulerAccess | None = None  # of a single job in a scheduler's allocation
        self.up: Callable[[str], bool] = lambda node: False  # whether the node's own agent is connected

    def get(self, name: str) -> ServedJob | None:
        """Return the job of this name. `ONLY` is the job of an orchestrator with a single job: its nodes need not know the job's name."""
        if name == ONLY and self.single:
            return next(iter(self._jobs.values()), None)
        return self._jobs.get(name)

    def all(self) -> list[ServedJob]:
        """Return all jobs in the order in which they were begun."""
        return list(self._jobs.values())

    def observe(self, evidence: Evidence, may: Callable[[str], bool] = lambda job: True) -> list[str]:
        """Pass evidence about a node to every job on it that is not over, and return these jobs' names.

        `may`: whether the source of the evidence has authority over a job.
        """
        has = [job for job in self._jobs.values() if not job.running.done() and evidence.name in job.service.machine.state.nodes]
        concerned = [job for job in has if may(job.name)]
        for job in concerned:
            job.service.observe(evidence)
        return [job.name for job in concerned]

    def tell_once(self, about: str, text: str) -> None:
        """Print a message about a repeated mistake of a client once. `about`: identifies the mistake."""
        if about not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(about)
            self._tell(text)

    def put_aside(self, name: str, why: str) -> None:
        """Put a job aside: nothing is decided for it, and nothing is ended; its training goes on without an orchestrator. Other jobs are
        not affected.
        """
        self.aside[name] = why
        self._tell(service_jobs.JOB_PUT_ASIDE(job=name, reason=why))

    def why_aside(self, name: str) -> str | None:
        """Return why this job is put aside; None if it is not."""
        if name == ONLY and self.single:
            return next(iter(self.aside.values()), None)
        return self.aside.get(name)

    def admit(self, job: ServedJob, joined: NodeJoined, position: Position | None) -> bool:
        """Return whether an agent of this job may join, which knows the journal up to `position`; if not, it gets the reason.

        If the journal does not reach this position, the job is put aside; not because of an agent that should not have been started.
        """
        if self._jobs.get(job.name) is not job:
            return False
        if position is None or not job.service.lacks(position) or job.service.refuses(joined):
            return True
        self._guard()
        del self._jobs[job.name]
        job.service.suspend()
        job.running.cancel()
        self.put_aside(job.name, orchestrators.JOURNAL_BEHIND(node=joined.node, number=position.number))
        return False

    def problems(self) -> list[str]:
        """Return what limits this orchestrator now. Anyone can read it, so it has no names and places."""
        found: list[str] = []
        if self.journal.trouble:
            found.append(orchestrators.UNSURE_JOURNAL())
        if self.aside:
            found.append(orchestrators.JOBS_ASIDE(count=len(self.aside)))
        return found

    def begin(
        self,
        settings: Settings,
        *,
        request: str = "",
        known: Recorded | None = None,
        folder: Path | None = None,
        policy: Policy | None = None,
    ) -> ServedJob:
        """Begin a new job, or continue one that is `known`.

        With a `folder` its output is kept there. `policy`: the one of the settings, if they were read already.
        """
        name, settings = settings.spec.job, settings.identified() if known is None else settings
        output = Output(folder / FILE, self._tell) if folder is not None else None

        def tell(text: str) -> None:
            if output is None:
                self._tell(text)
            else:
                output.write(f"understudy: {plain(text)}\n")

        machine = Machine(settings.spec, settings.timeouts)
        write = output.write if output is not None else lambda text: None
        journal = self.journal.begin(settings, request, known.chain if known is not None else None)
        service = Service(
            machine,
            journal,
            tell=tell,
            output=write,
            guard=self._guard,
            up=lambda node: self.up(node),
            far=folder is not None,
            silent_since=self._silent_since,
            policy=policy or (parse(settings.policy, "policy") if settings.policy else None),
            scheduler=self.scheduler,
            shared=folder is not None,
        )
        if known is not None:
            service.resume(known.events)
            service.pages.update(known.pages)
        over = machine.state.ended
        work = service.run() if over is None or journal.strict else _ended(over.exit_code)
        job = self._jobs[name] = ServedJob(name, service, output, asyncio.create_task(work, name=f"job {name}"))
        if output is not None:
            job.running.add_done_callback(lambda _: output.close())
        return job


async def _ended(code: int) -> int:
    return code

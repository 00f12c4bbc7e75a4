"""What people and programs see of a job: status and report, as plain JSON values.

The same functions serve the API, from the running machine, and the command line after the job, from its journal.
Times are unix seconds, durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from typing_extensions import TypedDict

from understudy.core.machine import Machine
from understudy.core.nouns import Incident
from understudy.core.state import Phase, Worker, WorkerState
from understudy.links.page import PageView
from understudy.orchestrator import journal

PHASES = ("detect", "abort", "assign", "setup", "attach", "transfer", "verify", "redo")


class RankStatus(TypedDict):
    rank: int
    worker: str
    pid: int
    node: str
    state: str
    step: int


class SpareStatus(TypedDict):
    worker: str
    pid: int
    node: str
    state: str


class Status(TypedDict):
    job: str
    state: str  # forming, training, recovering, finished, failed
    generation: int
    step: int  # last step that every rank has committed
    transaction: int  # the one that the slowest rank is in
    ranks: list[RankStatus]
    spares: list[SpareStatus]
    incidents: int
    notices: list[str]
    message: str  # how the job ended
    exit_code: int | None  # None while it has not


class RankReport(TypedDict):
    rank: int
    cause: str
    detail: str
    old_worker: str
    new_worker: str


class IncidentReport(TypedDict):
    number: int
    planned: bool
    cause: str
    rank: int | None  # None: nobody was lost
    old_worker: str
    new_worker: str
    ranks: list[RankReport]  # every loss of the incident, in the order in which they were seen
    decision: str
    fault_at: float
    step: int
    transaction: int
    phases: dict[str, float]  # a phase that did not take place took 0 s
    starts: dict[str, float]  # seconds from the fault to the start of each phase that took place
    seconds: float | None  # fault to next commit by every rank; None while it lasts
    bytes_moved: int
    steps_lost: int
    digests_verified: int
    notes: list[str]


class Report(TypedDict):
    job: str
    incidents: list[IncidentReport]


class NoJournal(FileNotFoundError):
    """The directory holds no journal of a run."""


def status(machine: Machine, pages: Mapping[str, PageView]) -> Status:
    state = machine.state
    ranks = []
    for rank, name in sorted(state.ranks.items()):
        worker = state.workers[name]
        ranks.append(
            RankStatus(
                rank=rank,
                worker=name,
                pid=worker.pid,
                node=worker.node,
                state=_worker_state(machine, worker),
                step=_step(worker, pages),
            )
        )
    members = state.members() or [state.workers[name] for name in state.ranks.values()]
    seen = [pages[worker.name].transaction for worker in members if worker.name in pages]
    return Status(
        job=state.spec.job,
        state=_job_state(machine),
        generation=state.generation,
        step=min((_step(worker, pages) for worker in members), default=0),
        transaction=min(seen, default=-1),
        ranks=ranks,
        spares=[
            SpareStatus(worker=worker.name, pid=worker.pid, node=worker.node, state=str(worker.state))
            for worker in state.idle(WorkerState.STARTING, WorkerState.WARM)
            if worker.spare
        ],
        incidents=len(machine.incidents()),
        notices=list(state.notices),
        message=state.ended.message if state.ended is not None else "",
        exit_code=state.ended.exit_code if state.ended is not None else None,
    )


def report(machine: Machine) -> Report:
    return Report(job=machine.state.spec.job, incidents=[_incident(incident) for incident in machine.incidents()])


def offline_status(run_dir: Path) -> Status:
    """From the journal alone. Raises `NoJournal`."""
    machine, pages = load(run_dir)
    return status(machine, pages)


def offline_report(run_dir: Path) -> Report:
    """From the journal alone. Raises `NoJournal`."""
    return report(load(run_dir)[0])


def load(run_dir: Path) -> tuple[Machine, dict[str, PageView]]:
    """The machine and the last known pages of a run. Raises `NoJournal`."""
    found = journal.read(run_dir / journal.FILE)
    if found is None:
        raise NoJournal(f"no journal of a run in {run_dir}")
    return journal.replay(found.settings, found.events), found.pages


def _step(worker: Worker, pages: Mapping[str, PageView]) -> int:
    page = pages.get(worker.name)
    return max(worker.step, page.step if page is not None else 0)


def _job_state(machine: Machine) -> str:
    state = machine.state
    if state.ended is not None:
        return "finished" if state.ended.exit_code == 0 else "failed"
    return "recovering" if state.phase in (Phase.QUIESCING, Phase.RESUMING) else str(state.phase)


def _worker_state(machine: Machine, worker: Worker) -> str:
    if worker.finished:
        return "finished"
    if machine.state.ended is not None and worker.state is not WorkerState.LOST:
        return "stopped"
    return str(worker.state)


def _incident(incident: Incident) -> IncidentReport:
    spans = {span.phase: span.seconds for span in incident.spans}
    first = incident.ranks[0] if incident.ranks else None
    same = [part for part in incident.ranks if first is not None and part.rank == first.rank]
    return IncidentReport(
        number=incident.number,
        planned=incident.planned,
        cause=str(first.cause) if first is not None else "communication",
        rank=first.rank if first is not None else None,
        old_worker=first.old_worker if first is not None else "",
        new_worker=same[-1].new_worker if same else "",
        ranks=[
            RankReport(
                rank=part.rank,
                cause=str(part.cause),
                detail=part.detail,
                old_worker=part.old_worker,
                new_worker=part.new_worker,
            )
            for part in incident.ranks
        ],
        decision=incident.decision,
        fault_at=incident.fault_at,
        step=incident.step,
        transaction=incident.transaction,
        phases={phase: spans.get(phase, 0.0) for phase in PHASES},
        starts={span.phase: span.start for span in incident.spans},
        seconds=incident.seconds if incident.seconds >= 0 else None,
        bytes_moved=incident.bytes_moved,
        steps_lost=incident.steps_lost,
        digests_verified=incident.digests_verified,
        notes=list(incident.notes),
    )

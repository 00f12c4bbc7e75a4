"""Status and report of a job, as plain JSON values.

The same functions serve the API, from the running machine, and the command line after the job, from its journal. Times are unix seconds,
durations are seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from understudy.common.names import JOURNAL
from understudy.common.page_view import PageView
from understudy.common.phases import PHASES
from understudy.core import proofs
from understudy.core.machine import Machine
from understudy.core.model import Incident
from understudy.core.state import JobState, Worker
from understudy.core.transitions import Phase, WorkerState
from understudy.links.messages import encode
from understudy.messages import orchestrators
from understudy.orchestrator import claims_view, journal, taints_view
from understudy.orchestrator.rows import Recorded

STATES = (
    "`waiting` (for slots), `forming`, `training`, `recovering`, `held` (paused until an operator decides: replicas or "
    "a redo differ, or an incident is unproven and `--unproven pause` was given), "
    "`finished`, `failed`, `aside` (its record in the journal cannot be used, so the orchestrator does not manage it)"
)


Rank = Annotated[int, Field(description="number of the rank, from 0 to one less than the job's size")]
WorkerName = Annotated[str, Field(description="name of the worker, such as `w3`; names are not reused")]
NodeName = Annotated[str, Field(description="node of the worker")]
Pid = Annotated[int | None, Field(description="process id on its node; null while the worker is starting and it is not known")]
Cause = Annotated[
    str,
    Field(
        description="`killed` (a signal from outside), `crashed` (a signal raised in the process), `exited`, `hung`, "
        "`node` (its node is lost), `digest` (a newcomer whose state failed verification), "
        "`device` (its device failed), `corrupt` (its state differs from that of its replicas), "
        "`drained` (it was there at the deadline of a drain), `migrated`"
    ),
]


class RankStatus(TypedDict):
    """A rank, and the worker that holds it or held it last."""

    rank: Rank
    worker: WorkerName
    pid: Pid
    node: NodeName
    device: Annotated[str, Field(description="device of the node on which it computes: gpu1; empty: a CPU, or not known yet")]
    state: Annotated[
        str,
        Field(
            description="`training`, `newcomer` (its state is not verified yet), `leaving` (its rank is being moved), `lost`, `finished`, "
            "`released` (its worker was told to exit) or `stopped` (the job has ended); `starting` or `warm` while the job forms"
        ),
    ]
    step: Annotated[int, Field(description="steps that the rank has committed")]
    proven: Annotated[
        int | None,
        Field(
            description="the step at which a drill of this rank, or of one with its role, passed; null: none did. This is not the grade "
            "`proven` of an incident"
        ),
    ]


class SpareStatus(TypedDict):
    """A worker that waits for a rank."""

    worker: WorkerName
    pid: Pid
    node: NodeName
    state: Annotated[
        str,
        Field(
            description="`starting`; `warm`: it can take over a rank; `preparing`: it runs the script's setup as `rank`; `prepared`: it "
            "has done so, and takes over this rank sooner than a warm one"
        ),
    ]
    rank: Annotated[int | None, Field(description="rank for which it is prepared; null if none")]


class DrillStatus(TypedDict):
    """A spare that computes a step in parallel with a rank, to check whether the results are the same."""

    number: Annotated[int, Field(description="number of the drill, from 1")]
    rank: Rank
    worker: Annotated[str, Field(description="name of the spare")]
    stage: Annotated[
        str, Field(description="`preparing`: the spare runs the script's setup; `computing`: both are computing the step; `over`")
    ]
    verdict: Annotated[
        str,
        Field(
            description="`same`: the spare computed the same bits in both of its attempts; `partly`: the same as far as it was compared; "
            "`different`: the job would not survive a loss of the rank; `not reproducible`: two attempts of the spare itself differ; "
            "`broken`: no result; empty while the drill lasts"
        ),
    ]
    step: Annotated[int | None, Field(description="steps that were committed before the drilled one; null while the drill lasts")]
    detail: Annotated[str, Field(description="the differences, the first one by name; or why there is no result")]
    at: Annotated[float | None, Field(description="unix time of its end, in seconds; null while the drill lasts")]
    compared: Annotated[int, Field(description="number of tensors, values, streams and collectives that were compared")]
    collectives: Annotated[int, Field(description="number of collectives among them")]
    left_out: Annotated[int, Field(description="number of collectives that were not compared because their results were too large to send")]
    bytes_moved: Annotated[int, Field(description="bytes of state and results that the spare received")]
    pause: Annotated[float, Field(description="seconds that the rank spent on the drill instead of its step")]


class Status(TypedDict):
    """The state of a job."""

    job: Annotated[str, Field(description="name of the job")]
    state: Annotated[str, Field(description=f"one of {STATES}")]
    generation: Annotated[int, Field(description="how often the assignment of ranks to workers has changed")]
    step: Annotated[int, Field(description="the last step that every rank has committed")]
    transaction: Annotated[int, Field(description="transaction of the slowest rank, counted from 0; -1: its script is still in the setup")]
    ranks: Annotated[list[RankStatus], Field(description="by rank; empty while the job forms")]
    spares: Annotated[list[SpareStatus], Field(description="workers that are waiting for a rank")]
    torch: Annotated[
        dict[str, list[str]],
        Field(
            description="versions of torch in the current workers, each with the backends whose groups they reconnect in place "
            "after a loss (torch's `_reconfigure`); in groups of other backends a new communicator replaces the old one"
        ),
    ]
    floating: Annotated[claims_view.FloatingStatus, Field(description="spares that are claimed from the scheduler on demand")]
    drills: Annotated[
        list[DrillStatus], Field(description="the latest drills, in the order in which they began; the last one may not be over")
    ]
    incidents: Annotated[int, Field(description="number of incidents so far, including an open one")]
    grades: Annotated[dict[str, int], Field(description="closed incidents by grade: `proven`, `drilled`, `unproven`")]
    taints: Annotated[dict[str, str], Field(description="nodes that are not trusted, and why: no new ranks or spares go there")]
    tainted: Annotated[list[taints_view.TaintStatus], Field(description="the same, with each taint separately")]
    drains: Annotated[list[taints_view.DrainStatus], Field(description="nodes that are being drained, and their progress")]
    evidence: Annotated[
        list[taints_view.EvidenceStatus], Field(description="evidence of detectors; the latest of each kind and subject, at most 200")
    ]
    notices: Annotated[list[str], Field(description="notices of workers, each once")]
    refused: Annotated[dict[str, int], Field(description="number of ignored events, by type and reason")]
    message: Annotated[str, Field(description="how the job ended, what it is waiting for, or why it is paused")]
    exit_code: Annotated[int | None, Field(description="exit code of the job; null while it has not ended")]


class RankReport(TypedDict):
    """The loss or move of one rank."""

    rank: Rank
    cause: Cause
    detail: Annotated[str, Field(description="details, such as the signal, and the place in the script")]
    old_worker: Annotated[str, Field(description="worker that held the rank")]
    new_worker: Annotated[str, Field(description="worker that took it over; empty while none has")]


class IncidentReport(TypedDict):
    """One interruption, from the fault to the next step that every rank has committed."""

    number: Annotated[int, Field(description="number of the incident, from 1")]
    planned: Annotated[bool, Field(description="whether it was requested")]
    cause: Annotated[
        str,
        Field(
            description="cause of the first loss; if no rank was lost, `communication`, `corrupt` where replicas differ, or `section` "
            "where a section failed and was skipped"
        ),
    ]
    rank: Annotated[int | None, Field(description="first rank that was lost; null if communication failed and no rank was lost")]
    old_worker: Annotated[str, Field(description="worker that held that rank; empty if no rank was lost")]
    new_worker: Annotated[str, Field(description="worker that has held it since; empty while none does")]
    ranks: Annotated[list[RankReport], Field(description="every loss of the incident, in the order of detection")]
    decision: Annotated[
        str,
        Field(
            description="`redo`, `roll forward`, `boundary` (a migration), `start anew` (all ranks restarted, as nothing had been computed "
            "yet), `skip` (a section); empty until it is made"
        ),
    ]
    fault_at: Annotated[float, Field(description="unix time of the fault, in seconds")]
    step: Annotated[int, Field(description="the last step that the survivors had all committed")]
    transaction: Annotated[int, Field(description="transaction at which the job continued")]
    phases: Annotated[
        dict[str, float], Field(description=f"seconds of each phase ({', '.join(f'`{p}`' for p in PHASES)}); 0: it did not take place")
    ]
    starts: Annotated[
        dict[str, float], Field(description="seconds from the fault to the start of each phase that took place; they overlap")
    ]
    seconds: Annotated[
        float | None, Field(description="seconds from the fault to the next commit by every rank; null while the incident is open")
    ]
    bytes_moved: Annotated[int, Field(description="bytes of state that newcomers received from donors, over all attempts")]
    steps_lost: Annotated[int, Field(description="steps that were lost: always 0, as the protocol loses none")]
    digests_verified: Annotated[int, Field(description="number of digests of newcomers' state that matched the donors'")]
    proven_by: Annotated[
        list[int],
        Field(
            description="ranks that had reached their vote before the loss, and whose redo gave the same bits; empty: nothing was "
            "redone, no rank had reached its vote, or the redo differed"
        ),
    ]
    collectives: Annotated[
        list[int],
        Field(
            description="two numbers for the redo, over all ranks: collectives whose inputs were compared and are the same as before "
            "the loss, and all collectives; empty: there was nothing to compare"
        ),
    ]
    compared_bytes: Annotated[list[int], Field(description="the same two numbers as in `collectives`, in bytes instead of calls")]
    uncovered: Annotated[
        list[str],
        Field(
            description="state that the script changes and that is not carried over: the first few names, as reported by the ranks with "
            "their first commit after the recovery"
        ),
    ]
    without_copies: Annotated[
        float, Field(description="seconds from the fault until every rank's buddies had a copy of its state again; 0: not known")
    ]
    grade: Annotated[
        str,
        Field(
            description="`proven`: a comparison shows that the result is bitwise the same as without the incident; `drilled`: a drill "
            "shows it; `unproven`: neither does; empty while the incident is open, or if a worker of an earlier version took part"
        ),
    ]
    why: Annotated[str, Field(description="the reason for the grade")]
    notes: Annotated[list[str], Field(description="notes for people")]


class Report(TypedDict):
    """The incidents of a job."""

    job: Annotated[str, Field(description="name of the job")]
    incidents: Annotated[list[IncidentReport], Field(description="incidents in the order in which they began; the last one may be open")]
    floating: Annotated[claims_view.FloatingStatus, Field(description="floating spares, as in status")]
    drills: Annotated[list[DrillStatus], Field(description="drills, as in status")]


class NoJournal(FileNotFoundError):
    """The directory has no journal of a run."""


def status(machine: Machine, pages: Mapping[str, PageView], there: taints_view.There = lambda node: ()) -> Status:
    """Return the status. `there`: returns the workers of a node whose processes have not ended, as far as known."""
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
                device=worker.device,
                state=_worker_state(machine, worker),
                step=_step(worker, pages),
                proven=found if (found := proofs.proven(state, rank)) >= 0 else None,
            )
        )
    members = state.members() or [state.workers[name] for name in state.ranks.values()]
    present = [worker for worker in state.workers.values() if worker.state is not WorkerState.LOST]
    seen = [pages[worker.name].transaction for worker in members if worker.name in pages]
    return Status(
        job=state.spec.job,
        state=_job_state(machine),
        generation=state.generation,
        step=step(machine.state, pages),
        transaction=min(seen, default=-1),
        ranks=ranks,
        spares=[_spare(worker) for worker in state.idle(WorkerState.STARTING, WorkerState.WARM) if worker.spare],
        torch={worker.torch: sorted(worker.rejoins) for worker in present if worker.torch},
        floating=claims_view.floating_spares(state),
        drills=_drills(machine),
        incidents=len(machine.incidents()),
        grades=dict(Counter(str(incident.grade) for incident in machine.incidents() if incident.grade is not None)),
        taints={node.name: node.taint for node in state.nodes.values() if node.taint},
        tainted=taints_view.taints(state),
        drains=taints_view.drains(state, there),
        evidence=taints_view.evidence(state),
        notices=list(state.notices),
        refused={f"{event}: {why}": count for (event, why), count in state.refused.items()},
        message=state.ended.message if state.ended is not None else state.dispute.detail if state.dispute is not None else "",
        exit_code=state.ended.exit_code if state.ended is not None else None,
    )


def _drills(machine: Machine) -> list[DrillStatus]:
    state = machine.state
    found = [
        DrillStatus(
            number=result.number,
            rank=result.rank,
            worker=result.worker,
            stage="over",
            verdict=str(result.verdict),
            step=result.step,
            detail=result.detail,
            at=result.at,
            compared=result.compared,
            collectives=result.collectives,
            left_out=result.left_out,
            bytes_moved=result.bytes_moved,
            pause=result.pause,
        )
        for result in state.drills
    ]
    if state.drill is not None:
        here = state.drill
        open_one = DrillStatus(
            number=here.number,
            rank=here.rank,
            worker=here.worker,
            stage="computing" if here.running else "preparing",
            verdict="",
            step=None,
            detail="",
            at=None,
            compared=0,
            collectives=0,
            left_out=0,
            bytes_moved=0,
            pause=0.0,
        )
        found.append(open_one)
    return found


def _spare(worker: Worker) -> SpareStatus:
    state, rank = str(worker.state), None
    if worker.prepare is not None:
        state, rank = "prepared" if worker.ready else "preparing", worker.prepare.rank
    return SpareStatus(worker=worker.name, pid=worker.pid, node=worker.node, state=state, rank=rank)


def report(machine: Machine) -> Report:
    return Report(
        job=machine.state.spec.job,
        incidents=[_incident(incident) for incident in machine.incidents()],
        floating=claims_view.floating_spares(machine.state),
        drills=_drills(machine),
    )


def offline_status(run_dir: Path) -> Status:
    """Return the status from the journal alone. Raises `NoJournal`."""
    machine, pages = load(run_dir)
    return status(machine, pages)


def offline_report(run_dir: Path) -> Report:
    """Return the report from the journal alone. Raises `NoJournal`."""
    return report(load(run_dir)[0])


def offline_events(run_dir: Path) -> tuple[list[dict[str, Any]], bool]:
    """Return the events as in the API, and whether the job has ended, from the journal alone. Raises `NoJournal`."""
    found = _recorded(run_dir)
    rows = (journal.Numbered("", number, now, encode(event)) for number, (now, event) in enumerate(found.events, 1))
    return [row.shown() for row in rows], journal.replay(found.settings, found.events).state.ended is not None


def load(run_dir: Path) -> tuple[Machine, dict[str, PageView]]:
    """Return the machine and the last known pages of a run. Raises `NoJournal`."""
    found = _recorded(run_dir)
    return journal.replay(found.settings, found.events), found.pages


def _recorded(run_dir: Path) -> Recorded:
    found = journal.read(run_dir / JOURNAL)
    if found is None:
        raise NoJournal(orchestrators.NO_JOURNAL_OF_RUN(folder=run_dir))
    return found


def step(state: JobState, pages: Mapping[str, PageView]) -> int:
    """Return the last step that every rank is known to have committed, by its page."""
    members = state.members() or [state.workers[name] for name in state.ranks.values()]
    return min((_step(worker, pages) for worker in members), default=0)


def _step(worker: Worker, pages: Mapping[str, PageView]) -> int:
    page = pages.get(worker.name)
    return max(worker.step, page.step if page is not None else 0)


def _job_state(machine: Machine) -> str:
    state = machine.state
    if state.ended is not None:
        return "finished" if state.ended.exit_code == 0 else "failed"
    if state.dispute is not None:
        return "held"
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
        cause=incident.cause,
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
        proven_by=list(incident.proven_by),
        collectives=list(incident.collectives) if any(incident.collectives) else [],
        compared_bytes=list(incident.compared) if any(incident.collectives) else [],
        uncovered=list(incident.uncovered),
        without_copies=incident.without_copies,
        grade=str(incident.grade or ""),
        why=incident.why,
        notes=list(incident.notes),
    )

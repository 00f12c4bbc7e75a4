"""After Recover: verify newcomers, wait for the first commit of every rank, close the incident. And the end barrier.

A worker whose script has ended stays, as a donor, until every rank's script has. If it is lost in the meantime, its rank is taken over only
if the others need it.
"""

from __future__ import annotations

from understudy.core import dispute, drill, floating, grades, proofs
from understudy.core.commands import Release
from understudy.core.commit import REDO, SKIP
from understudy.core.events import Committed, Finished, PhaseDone, Uncovered, Verified
from understudy.core.incident import OpenIncident
from understudy.core.membership import top_up
from understudy.core.model import Grade
from understudy.core.preparation import prepare
from understudy.core.state import JobState, Stage, Worker
from understudy.core.taints import leave
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import recoveries
from understudy.messages.base import Text


def phase_done(state: JobState, event: PhaseDone) -> None:
    worker = state.workers[event.worker]
    migration, incident = state.migration, state.incident
    move = migration.to(worker.name) if migration is not None and migration.stage is Stage.PREPARING else None
    if move is not None:
        move.measured.append(event)
        return
    if incident is None:
        state.ignore(event, RefusalReason.OVER)
        return
    early = worker.state is WorkerState.NEWCOMER  # its set-up survives a second loss
    if not (early or event.generation == state.generation):
        state.ignore(event, RefusalReason.GENERATION)
        return
    incident.measure(event.phase, event.started, event.started + event.seconds)
    if worker.name in incident.newcomers:
        incident.bytes_moved += event.bytes_moved


def verified(state: JobState, event: Verified) -> None:
    """Accept a newcomer as verified. This stays true for the generation that it names, even if a later loss was seen first."""
    worker = state.workers[event.worker]
    if not worker.comes_with(event.generation):
        state.ignore(event, RefusalReason.GENERATION)
        return
    if state.incident is not None:
        state.incident.digests_verified += event.digests
        for text in event.notes:
            state.incident.note(f"rank {worker.rank}: {text}")
    for text in event.notes:
        state.report(f"rank {worker.rank} on {worker.name}: {text}")
    _promote(state, worker)


def committed(state: JobState, event: Committed) -> None:
    worker = state.workers[event.worker]
    if event.generation != state.generation:
        state.ignore(event, RefusalReason.GENERATION)
        return
    state.begun = True
    if worker.state is WorkerState.NEWCOMER and worker.comes_with(event.generation):
        _promote(state, worker)  # no worker votes unverified: the message was lost with a connection
    if worker.state is WorkerState.MEMBER:
        again = worker.committed == event.generation  # repeated after a connection was lost
        worker.committed, worker.step = event.generation, event.step
        if state.incident is not None and not again:
            state.incident.committed(worker.rank, event)
            state.incident.section |= _was_section(state, event)
        _settle(state)


def _was_section(state: JobState, event: Committed) -> bool:
    """Return whether the redone transaction that is committed now is a section, not a step."""
    recovery = state.recovery
    redone = recovery is not None and recovery.decision is not None and recovery.decision.decision == REDO
    return redone and recovery is not None and event.step == min((answer.step for answer in recovery.answers.values()), default=-1)


def finished(state: JobState, event: Finished) -> None:
    worker = state.workers[event.worker]
    if worker.state is WorkerState.NEWCOMER:
        if not worker.comes_with(event.generation):
            state.ignore(event, RefusalReason.GENERATION)
            return
        _promote(state, worker)
    worker.step = max(worker.step, event.step)
    worker.finished = True
    _settle(state)
    maybe_done(state)


def uncovered(state: JobState, event: Uncovered) -> None:
    if event.generation != state.generation:
        state.ignore(event, RefusalReason.GENERATION)
        return
    if state.recovery is not None:
        state.end(1, recoveries.STATE_NOWHERE(reason=state.recovery.reason, detail=event.detail))
    else:
        state.end(1, recoveries.STATE_NOWHERE_ALONE(detail=event.detail))


def maybe_done(state: JobState) -> None:
    """End the job if all ranks have finished (the end barrier)."""
    if not state.all_finished():
        return
    drill.call_off(state, "the job has ended")
    for worker in state.workers.values():
        if worker.state not in (WorkerState.LOST, WorkerState.RELEASED):
            state.set_worker_state(worker, WorkerState.RELEASED)
            state.emit(Release(worker.name, 0))
    incident, state.incident = state.incident, None
    if incident is not None:
        incident.note(recoveries.FINISHED_BEFORE_OVER())
        _close(state, incident)
    state.end(0, recoveries.ALL_FINISHED(ranks=state.spec.world_size, incidents=grades.summary(state.incidents)))


def _promote(state: JobState, worker: Worker) -> None:
    """Make a newcomer with verified state a member."""
    state.set_worker_state(worker, WorkerState.MEMBER)
    migration, recovery = state.migration, state.recovery
    move = migration.to(worker.name) if migration is not None else None
    if migration is not None and move is not None:
        leaver = state.workers[move.leaver]
        state.set_worker_state(leaver, WorkerState.RELEASED)
        migration.moves.remove(move)
        if not migration.moves:
            state.migration = None
        state.emit(Release(leaver.name, 0))
        if recovery is not None:
            recovery.waiting.discard(leaver.name)
            recovery.answers.pop(leaver.name, None)
    if state.phase is Phase.QUIESCING and recovery is not None:
        recovery.waiting.add(worker.name)  # verified before the abort reached it, so it answers like a survivor
        state.timer("quiesce", state.timeouts.quiesce)
    if not state.newcomers():
        state.cancel("resume")


def _settle(state: JobState) -> None:
    """Close the incident if every rank has committed in this generation."""
    if state.all_committed or state.phase not in (Phase.TRAINING, Phase.RESUMING):
        return
    if not state.everyone_committed():
        return
    state.set_phase(Phase.TRAINING)
    state.all_committed, state.recovery, state.crashes = True, None, None
    incident, state.incident = state.incident, None
    if incident is None:
        prepare(state)
        leave(state)
        return
    _close(state, incident)
    state.report(_summary(incident, state.now))
    if incident.grade is Grade.UNPROVEN:
        state.report(grades.warning(incident))
    proofs.survived(state, incident)
    if state.all_finished():
        return
    for node in state.nodes.values():
        node.spares, node.refused = node.spares + node.refused, 0  # there may be room again
    floating.release(state)
    top_up(state)
    prepare(state)
    leave(state)
    if grades.pauses(state, incident):
        dispute.pause(state, incident)


def _close(state: JobState, incident: OpenIncident) -> None:
    if incident.skipped and not (incident.ranks or incident.unexplained or incident.disputed or incident.differed or incident.believed):
        incident.decision = SKIP
    proofs.redone(incident)
    grades.give(state, incident)
    state.incidents.append(incident.freeze(state.now))


def _summary(incident: OpenIncident, now: float) -> Text:
    now_on = {part.rank: part.new_worker for part in incident.ranks if part.new_worker}
    what = ", ".join(f"rank {rank} is on {worker}" for rank, worker in sorted(now_on.items()))
    if incident.decision == SKIP:
        what = "a section has failed"
    how = {
        SKIP: "skipped",
        "redo": "redone",
        "roll forward": "rolled forward",
        "boundary": "at a boundary",
        "start anew": "restarted from scratch",
    }
    decision = how.get(incident.decision, incident.decision)
    return recoveries.INCIDENT_OVER(
        number=incident.number,
        what=what or "no rank was lost",
        transaction=incident.transaction,
        decision=decision,
        seconds=now - incident.fault_at,
        since="the pause" if incident.planned else "fault",
        grade=f"; {incident.grade}: {incident.why}" if incident.grade is not None else "",
    )

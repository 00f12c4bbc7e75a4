"""Handle replicas that differ, and redone steps that differ from the first attempt.

The workers compare (`worker/verification/comparison.py`, `redo.py`, and in every recovery) and report what they found; none of them goes on
in that generation.

    replicas_differ   if the majority shows which rank is odd, its worker is lost (or had finished, and is gone), its node is tainted, and
                      a spare takes its rank as after any loss. Otherwise all ranks quiesce, and `quiesce.advance` decides nothing as long
                      as there is a dispute
    redo_differs      the same; all ranks are in the vote of the redo, and only its state is left. So all of them are one side, and
                      whichever rank is chosen, all go on with it: the vote is rolled forward. If another loss prevents this, the step is
                      redone once more, and no operator has approved the new result: if it differs, the job pauses again
    pause             an incident is unproven, and the job must then wait: all ranks are one side
    believed          an operator has decided which rank is right: ranks with other state are lost, and the job goes on

If the reason for the difference is known (the device does not compute reproducibly; a rank was corrupt before), it is reported, and the job
does not pause.

A loss in a paused job is handled like others (the next generation, a spare sets up), but it decides nothing: the loss of one of two
replicas does not make the other one right. The dispute is part of the machine's state, so it is in the journal.

Known limit: the rank-local state of an odd rank (random streams, data position) has no replica. Its newcomer gets the copy that the odd
worker sent to its buddies, and the incident notes it.

A redo that differs only in the inputs of collectives (`RedoDiffers.partly`) holds the job only if a drill of the role has passed, which
shows that two attempts give the same, and the same call is issued in every step, so that the drill has seen it. Otherwise it is reported,
and the redo goes on: a number in a collective may be of no consequence, such as a time that is summed up for a user. If all ranks of a
dispute are lost, the recovery goes on and finds that their state is nowhere.
"""

from __future__ import annotations

from understudy.core import proofs
from understudy.core.events import Believed, RedoDiffers, ReplicasDiffer
from understudy.core.incident import OpenIncident
from understudy.core.loss import Loss, finished_then_lost_needed, lose
from understudy.core.membership import open_incident
from understudy.core.migration import disrupted
from understudy.core.model import DrillVerdict, LossCause
from understudy.core.quiesce import advance, begin, is_attached
from understudy.core.state import CORRUPT, Dispute, JobState, Taint, Worker
from understudy.core.taints import taint
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import disputes, grades
from understudy.messages.base import Text


def replicas_differ(state: JobState, event: ReplicasDiffer) -> None:
    if not is_attached(state, event.worker, event.generation):
        state.ignore(event, RefusalReason.GENERATION)
        return
    odd = [_at(state, rank) for rank in event.odd if rank in state.ranks]
    sides = [tuple(rank for rank in side if rank in state.ranks) for side in event.sides]
    if odd:
        _replace(state, odd, event.detail)
    elif sides := [side for side in sides if side]:
        _hold(state, tuple(sides), event.detail)


def _at(state: JobState, rank: int) -> Worker:
    """Return the worker with the state of `rank` that was compared: its old worker while the rank moves."""
    return next((leaver for leaver in state.leavers() if leaver.rank == rank), state.holder(rank))


def _replace(state: JobState, odd: list[Worker], detail: str) -> None:
    for worker in odd:
        taint(state, worker.node, Taint(CORRUPT, f"rank {worker.rank} (worker {worker.name}): {detail}"))
    there = [worker for worker in odd if worker.state is not WorkerState.LOST]
    if there:
        lose(state, [Loss(worker, LossCause.CORRUPT, detail, state.now) for worker in there])
    else:  # all of them had finished and are gone: the others, which found the difference, do not go on
        finished_then_lost_needed(state, detail)
    if state.incident is not None and state.ended is None:
        for worker in odd:
            state.incident.note(disputes.NO_REPLICA(rank=worker.rank, worker=worker.name))


def _hold(state: JobState, sides: tuple[tuple[int, ...], ...], found: str) -> None:
    described = " or ".join(f"rank {_list(side)}" if len(side) == 1 else f"ranks {_list(side)}" for side in sides)
    detail = disputes.HELD(found=found, sides=described)
    _dispute(state, sides, found, detail).disputed = True
    disrupted(state, set(), "replicas differ")
    begin(state, found, [])


def _dispute(state: JobState, sides: tuple[tuple[int, ...], ...], found: str, detail: str) -> OpenIncident:
    """Pause the job: stop all decisions, and abort the workers that are still running."""
    state.dispute = Dispute(sides, tuple(_at(state, rank).name for side in sides for rank in side), detail, found)
    return _report(state, found, detail)


def _report(state: JobState, found: str, detail: str) -> OpenIncident:
    state.report(detail)
    incident = open_incident(state, state.now, found)
    incident.note(detail)
    return incident


def redo_differs(state: JobState, event: RedoDiffers) -> None:
    """Handle a redo that differs.

    It is reported in a vote that no rank passes: before all ranks have committed in this generation, or, if that has ended in the meantime,
    before its worker quiesces.
    """
    worker, recovery = state.workers[event.worker], state.recovery
    if event.generation <= worker.differed:
        state.ignore(event, RefusalReason.AGAIN)
        return
    at_rest = recovery is None or worker.name not in recovery.waiting
    resuming = state.phase is Phase.RESUMING and event.generation == state.generation
    if not resuming and (state.phase is not Phase.QUIESCING or at_rest or event.generation != worker.recovered):
        state.ignore(event, RefusalReason.GENERATION)
        return
    worker.differed = event.generation
    rank = worker.rank
    what = {"rank": rank, "worker": worker.name, "transaction": event.transaction, "step": event.step, "detail": event.detail}
    found = disputes.REDO_DIFFERS(**what)
    if detail := _expected(state, event, rank, what):
        incident = _report(state, found, detail)
    elif state.dispute is not None or (state.incident is not None and state.incident.held_in == event.generation):
        incident = _report(state, found, found)  # another rank has reported it before, and may have been decided on already
    else:
        incident = _dispute(state, (tuple(sorted(state.ranks)),), found, disputes.REDO_HELD(**what))
        incident.held_in = event.generation
    incident.differed = incident.differed or event.detail
    if resuming:
        disrupted(state, set(), "a redo differs")
        begin(state, found, [])


def _expected(state: JobState, event: RedoDiffers, rank: int, what: dict[str, object]) -> Text | None:
    """Return why this redo (`what`) may differ, or had to; None if it must not.

    If the difference is in the input of a collective, the numbers may be irrelevant, such as times that are summed up for display. Only a
    drill can show that two attempts give it the same input, and only for a collective that is issued in every step.
    """
    drilled = proofs.verdict(state, rank)
    if drilled is not None and drilled.verdict is DrillVerdict.NOT_REPRODUCIBLE:
        return disputes.REDO_NOT_REPRODUCIBLE(**what, drill=drilled.number, of=drilled.rank, drilled=drilled.step)
    if state.incident is not None and state.incident.unexplained:
        return disputes.REDO_AFTER_BREAK(**what)
    if event.partly and drilled is not None and drilled.verdict is DrillVerdict.DIFFERENT:
        return disputes.REDO_AS_DRILLED(**what, drill=drilled.number, of=drilled.rank, drilled=drilled.step, found=drilled.detail)
    if event.partly and not (event.sure and drilled is not None and drilled.verdict is DrillVerdict.SAME):
        return disputes.REDO_UNPROVEN(**what)
    corrupt = [part.rank for part in state.incident.ranks if part.cause is LossCause.CORRUPT] if state.incident is not None else []
    return disputes.REDO_AFTER_CORRUPTION(**what, corrupt=corrupt[0]) if corrupt else None


def pause(state: JobState, unproven: OpenIncident) -> None:
    """Pause the job after an unproven incident (`JobSpec.unproven`)."""
    detail = grades.PAUSED(number=unproven.number, why=unproven.why)
    _dispute(state, (tuple(sorted(state.ranks)),), f"incident {unproven.number} is unproven", detail).pause = True
    disrupted(state, set(), detail)
    begin(state, detail, [])


def refusal(state: JobState, rank: int) -> str:
    """Return why `rank` cannot be declared right now; empty if it can."""
    dispute = state.dispute
    if dispute is None or state.phase is Phase.ENDED:
        return disputes.NOT_HELD()
    if not any(rank in side for side in dispute.sides):
        return disputes.NOT_IN_DISPUTE(rank=rank, ranks=", ".join(map(_list, dispute.sides)))
    holder = state.holder(rank)
    if holder.name not in dispute.workers or holder.state is not WorkerState.MEMBER:
        return disputes.HOLDER_LOST(rank=rank)
    return ""


def believed(state: JobState, event: Believed) -> None:
    dispute, why_not = state.dispute, refusal(state, event.rank)
    if why_not or dispute is None:
        state.report(disputes.CANNOT_BE_BELIEVED(rank=event.rank, why=why_not))
        return
    state.dispute = None
    note = disputes.BELIEVED_FOR(rank=event.rank, reason=event.reason) if event.reason else disputes.BELIEVED(rank=event.rank)
    state.report(note)
    if state.incident is not None:
        state.incident.note(note)
        state.incident.believed = True
    others = [state.holder(rank) for side in dispute.sides if event.rank not in side for rank in side]
    wrong = [worker for worker in others if worker.name in dispute.workers and worker.state is WorkerState.MEMBER]
    if wrong:
        _replace(state, wrong, disputes.HOLDS_ANOTHER(rank=event.rank, found=dispute.found))
    else:
        advance(state)


def _list(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))

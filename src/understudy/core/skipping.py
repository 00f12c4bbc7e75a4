"""Skip a section on all ranks after it has failed on one: `job.section(on_error="report")`.

No rank is lost, but other ranks may wait for that rank in a collective of the section. So the generation ends, all ranks go back to the
section's begin, and the rank that failed informs the others when they meet in the next generation (`worker.recovery.attachment`).
"""

from __future__ import annotations

from understudy.core.events import SectionFailed
from understudy.core.membership import open_incident
from understudy.core.migration import disrupted
from understudy.core.quiesce import begin, is_attached
from understudy.core.state import JobState
from understudy.core.transitions import RefusalReason
from understudy.messages import recoveries


def section_failed(state: JobState, event: SectionFailed) -> None:
    if not is_attached(state, event.worker, event.generation):
        state.ignore(event, RefusalReason.GENERATION)  # that generation is ending already; the worker informs the others anyway
        return
    worker = state.workers[event.worker]
    reason = recoveries.SECTION_SKIPPED(rank=worker.rank, worker=worker.name, detail=event.detail)
    state.report(reason)
    incident = open_incident(state, state.now, reason)
    incident.note(reason)
    incident.skipped = True
    disrupted(state, set(), reason)
    begin(state, reason, [])

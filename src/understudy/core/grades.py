"""Grade each incident by the evidence that its result is bitwise that of an undisturbed run.

    proven    every survivor that has redone a transaction gave its collectives the same input as before, or reached the same state;
              each newcomer gave the input that the lost worker had given; and all of the redo was compared, or a drill of the rank passed
    drilled   the survivors as above, and a drill of each rank that has a newcomer has passed, and no further state has been seen to change
              since
    unproven  neither; with the reason

If only a part of a redo is compared, a script may change something before the interruption and read it after it. Only a drill, which
interrupts a step in the middle, would show that. So a partial comparison proves nothing by itself.

A drill after the incident counts as well (`drilled`): if only a drill is missing, the incident is unproven until the first drill of each
rank that needs one, or of a rank with the same role. This does not apply if a survivor had to redo the job's first step and only a part of
that was compared, because a first step often does what no later one does.

A passed drill, before or after the incident, counts only if its worker has had its rank for as long as the lost worker had. A spare and a
newcomer lack the same state, so they agree with each other.

By kind of incident:

    redo                  as above
    rolled forward        nothing is redone: survivors go on with their results, and newcomers need a drill
    planned move          the same
    between two steps     survivors have redone nothing; the newcomer computes a step that no rank had begun, and needs a drill
    section               as a redo, but drills do not cover sections: all of it must be compared
    set-up                all ranks start from the beginning: proven, unless the script is not protected and may have computed something
    in place              no newcomers: as a redo, and a partial comparison needs a drill of each rank
    skipped section       nothing was computed, so there is no grade, unless a rank was lost as well
    several losses        the grade of the weakest rank; of a rank that was lost again, of each of its newcomers

Any of these rules out every grade but unproven: a redo that differs, replicas that differed, a failed drill, state that the script is known
to change and that is not carried over, and, if there are newcomers, a warning of the job that newcomers lack something (`WARNED`).

Known limit: this does not detect changes of state that is not inspected and that takes part in no computation before the next checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from understudy.core import proofs
from understudy.core.commands import Record
from understudy.core.commit import SKIP
from understudy.core.events import IncidentGraded
from understudy.core.incident import Commits, OpenIncident
from understudy.core.model import AwaitedDrills, DrillResult, DrillVerdict, Evidence, Grade, Incident, LossCause, Unproven
from understudy.core.state import JobState
from understudy.messages import grades, newcomers, script, set_up, transactions
from understudy.messages.base import CODE, Text

_START_ANEW = "start anew"  # a decision: all ranks start from scratch
_SHOWN = 3
_OF_THE_SCRIPT = (
    *(script.WORK_KEPT, script.USED_BETWEEN, script.COMPUTED_OUTSIDE, script.NAMES_LEFT),
    *(transactions.OWN_ITERATOR, transactions.OTHER_MODELS),
)
_OF_A_NEWCOMER = (
    set_up.FILES_WRITTEN_SINCE,
    newcomers.RESULT_OF_ANOTHER,
    newcomers.OF_ANOTHER_RANK,
    newcomers.NOT_HANDED_OVER,
    newcomers.NOT_SET,
    newcomers.LARGE_RESULT,
    newcomers.CHANGE_LOST,
    newcomers.CHANGE_RUN_AGAIN,
)
WARNED = frozenset(message.code for message in _OF_THE_SCRIPT + _OF_A_NEWCOMER)


class Graded(NamedTuple):
    grade: Grade
    why: Text
    lacking: tuple[int, ...] = ()  # ranks for which a passed drill would make the incident drilled


def give(state: JobState, incident: OpenIncident) -> None:
    """Grade an incident that is over.

    It gets no grade if nothing but a section was skipped, or if a worker of an earlier version sent no evidence.
    """
    if incident.decision == SKIP:
        return
    if all(commits.evidence is not Evidence.UNSAID for commits in incident.commits.values()):
        incident.grade, incident.why, lacking = grade(state, incident)
        if lacking:
            held, concerned = min(_held(state, incident, rank) for rank in lacking), _concerned(state, incident)
            incident.awaits = AwaitedDrills(lacking, concerned, held, state.drilled, proofs.changing(state))
        state.emit(Record(IncidentGraded(incident.number, incident.grade, incident.why)))


def drilled(state: JobState, result: DrillResult) -> None:
    """Grade the incidents again that need the drill that has ended."""
    for number, incident in enumerate(state.incidents):
        awaits = incident.awaits
        if awaits is None or result.number <= awaits.after:
            continue
        if result.verdict in proofs.FAILED:
            if any(proofs.are_alike(state, rank, result.rank) for rank in awaits.judged):
                proofs.regrade(state, number, Grade.UNPROVEN, _failed(result))
            continue
        covers = result.since <= awaits.held and awaits.changing <= result.changing
        left = tuple(rank for rank in awaits.ranks if not proofs.are_alike(state, rank, result.rank))
        if result.verdict is not DrillVerdict.SAME or not covers or left == awaits.ranks:
            continue
        passed = (*awaits.passed, _passed(result))
        if left:
            state.incidents[number] = replace(incident, awaits=replace(awaits, ranks=left, passed=passed))
        elif (warned := _warned(incident, state.notices)) is not None and any(part.new_worker for part in incident.ranks):
            proofs.regrade(state, number, Grade.UNPROVEN, warned)
        else:
            why = grades.DRILLED_LATER(drills=" and ".join(passed), compared=_compared(incident))
            proofs.regrade(state, number, Grade.DRILLED, why)
            state.report(grades.RAISED(number=incident.number, grade=Grade.DRILLED, why=why))


def grade(state: JobState, incident: OpenIncident) -> Graded:
    if incident.decision == _START_ANEW:
        return Graded(Grade.PROVEN, grades.STARTED_OVER()) if state.protected else Graded(Grade.UNPROVEN, grades.NOT_PROTECTED())
    new = _new(state, incident)
    redone = _redone(incident)
    verdicts = {rank: proofs.verdict(state, rank, _held(state, incident, rank)) for rank in _concerned(state, incident)}
    warned = _warned(incident, state.notices) if new else None
    if (why := _against(incident, verdicts.values()) or warned or _uncompared(incident, new)) is not None:
        return Graded(Grade.UNPROVEN, why)
    alone = [rank for rank in new if _of(incident, rank).evidence is not Evidence.SAME]  # without any comparison with the lost worker
    in_part = [rank for rank in redone if not _of(incident, rank).whole and rank not in alone]
    lacking = alone + in_part if incident.section else [rank for rank in alone + in_part if not _has_passed(verdicts[rank])]
    if lacking:
        rank = lacking[0]
        what = f"no data of the lost worker of rank {rank} was there to compare with" if rank in alone else "only a part was compared"
        what += _compared(incident)
        if incident.section:
            return Graded(Grade.UNPROVEN, grades.SECTION(what=what))
        known = [found for rank in lacking if (found := verdicts[rank]) is not None]
        hopeless = incident.first_in_part or any(found.verdict is DrillVerdict.PARTLY for found in known)
        return Graded(Grade.UNPROVEN, grades.NOT_DRILLED(what=what, rank=rank), () if hopeless else tuple(lacking))
    if not new:
        return Graded(Grade.PROVEN, grades.NO_NEWCOMER(compared=_compared(incident)))
    if not alone:
        return Graded(Grade.PROVEN, grades.COMPARED(ranks=_ranks(new), compared=_compared(incident)))
    passed = {found.number: found for found in map(verdicts.__getitem__, alone) if found is not None}.values()
    return Graded(Grade.DRILLED, grades.DRILLED(drills=" and ".join(map(_passed, passed)), compared=_compared(incident)))


def _new(state: JobState, incident: OpenIncident) -> list[int]:
    """Return the ranks that newcomers of this incident hold."""
    return [rank for rank, holder in sorted(state.ranks.items()) if holder in incident.newcomers]


def _redone(incident: OpenIncident) -> list[int]:
    return [rank for rank, commits in sorted(incident.commits.items()) if commits.evidence is not Evidence.FIRST]


def _concerned(state: JobState, incident: OpenIncident) -> tuple[int, ...]:
    """Return the ranks whose drills are relevant to this incident."""
    return tuple(sorted({*_new(state, incident), *_redone(incident)}))


def _held(state: JobState, incident: OpenIncident, rank: int) -> int:
    """Return the generation in which the rank's worker that was lost, or has redone something, had it; -1: from the start.

    A drill of a later newcomer does not show the state that this worker has and a newcomer lacks.
    """
    lost = [part.old_worker for part in incident.ranks if part.rank == rank]
    kept = [state.ranks[rank]] if state.ranks[rank] not in incident.newcomers else []
    return min((proofs.since(state, worker) for worker in lost + kept), default=-1)


def _against(incident: OpenIncident, verdicts: Iterable[DrillResult | None]) -> Text | None:
    """Return the reason that rules out any grade but unproven."""
    if incident.differed:
        return grades.DIFFERED(found=incident.differed)
    if incident.disputed or (incident.believed and not incident.pause):
        return grades.DECIDED(who="an operator" if incident.believed else "a majority of replicas")
    if corrupt := [part.rank for part in incident.ranks if part.cause is LossCause.CORRUPT]:
        return grades.CORRUPT(rank=corrupt[0])
    for found in verdicts:
        if found is not None and found.verdict in proofs.FAILED:
            return _failed(found)
    if names := incident.uncovered:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return grades.UNCOVERED(names=f"{', '.join(names[:_SHOWN])}{more}")
    return None


def is_warning(text: str) -> bool:
    """Return whether a notice rules a grade out."""
    return not WARNED.isdisjoint(CODE.findall(text))


def _warned(incident: OpenIncident | Incident, notices: Iterable[str]) -> Text | None:
    """Return the reason if the job, or a newcomer of this incident, has warned that a newcomer does not have what the lost worker had."""
    for text in (*incident.notes, *notices):
        if is_warning(text):
            return grades.WARNED(text=text)
    return None


def _uncompared(incident: OpenIncident, new: Sequence[int]) -> Text | None:
    """Return the reason if nothing of a survivor's redo was compared."""
    what = "a section" if incident.section else "its step"
    for rank, commits in sorted(incident.commits.items()):
        if commits.evidence is Evidence.DIFFERENT or (commits.evidence is Evidence.NOTHING and rank not in new):
            return grades.NOT_COMPARED(rank=rank, what=what)
    return None


def _of(incident: OpenIncident, rank: int) -> Commits:
    return incident.commits.get(rank, Commits())


def _has_passed(found: DrillResult | None) -> bool:
    return found is not None and found.verdict is DrillVerdict.SAME


def _passed(found: DrillResult) -> str:
    return f"drill {found.number} of rank {found.rank} passed at step {found.step}"


def _failed(found: DrillResult) -> Text:
    detail = f": {found.detail}" if found.detail else ""
    return grades.DRILL_FAILED(drill=found.number, of=found.rank, step=found.step, verdict=found.verdict, found=detail)


def _compared(incident: OpenIncident | Incident) -> str:
    """Describe how much of the redo was compared. It matches, or its difference is reported separately."""
    (same, of), (size, size_of) = incident.collectives, incident.compared
    if not of:
        return ""
    share = f", {100 * size / size_of:.0f} % of the bytes" if size_of else ""
    return f" ({same} of the {of} collectives of the redo were compared and match{share})"


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def warning(incident: OpenIncident) -> Text:
    return grades.WARNING(number=incident.number, why=incident.why)


def pauses(state: JobState, incident: OpenIncident) -> bool:
    """Return whether the job is paused after this incident until an operator continues it."""
    decided = incident.believed and not incident.newcomers  # the operator who continued the job could judge all of it
    return state.spec.unproven is Unproven.PAUSE and incident.grade is Grade.UNPROVEN and not decided


def summary(incidents: Sequence[Incident]) -> str:
    """Summarize the incidents for the last line of a job."""
    count = len(incidents)
    total = {0: "no incidents", 1: "1 incident"}.get(count, f"{count} incidents")
    found = Counter(incident.grade for incident in incidents)
    parts = [f"{found[one]} {one.upper() if one is Grade.UNPROVEN else one}" for one in Grade if found[one]]
    return f"{total} ({', '.join(parts)})" if parts else total

"""Evaluate the results of drills and redos, and choose the rank and time of the next drill.

No drill begins here: the orchestrator knows the steps and asks `drill.due`.

Ranks that hold entries of the same names and issue the same collectives have the same *role*: the stages of a pipeline have different
roles, replicas and shards the same. One rank of each role is drilled first, from step `JobSpec.drill_at` on, and then the rank whose last
drill is the oldest, as soon as that keeps the cost of drills for their ranks within `SHARE` of the time. A drill without a result is
repeated after increasing delays. A verdict ends when names, roles or layouts change (`Registered`), or when more state is seen to change
(`StateListed`).
"""

from __future__ import annotations

from dataclasses import replace

from understudy.core.commands import Record
from understudy.core.events import IncidentGraded, Registered, StateListed
from understudy.core.incident import OpenIncident
from understudy.core.model import AwaitedDrills, DrillResult, DrillVerdict, Grade
from understudy.core.state import JobState
from understudy.core.transitions import RefusalReason
from understudy.messages import drills, grades
from understudy.messages.base import Text

SHARE = 0.001  # share of the training time that drills may cost
FIRST_SHARE = 0.1  # the same, as long as some role has no verdict
LEAST = 60.0  # seconds between two automatic drills, once each role has a verdict
PROVEN = (DrillVerdict.SAME, DrillVerdict.PARTLY)
FAILED = (DrillVerdict.DIFFERENT, DrillVerdict.NOT_REPRODUCIBLE)


def verdict(state: JobState, rank: int, held: int | None = None) -> DrillResult | None:
    """Return the last drill of this rank with a verdict, or else of a rank with its role; None if there is none.

    `held`: a passed drill counts only if its worker had its rank in this generation (`since`).
    """

    def counts(result: DrillResult) -> bool:
        is_of_old = held is None or result.since <= held or result.verdict not in PROVEN
        return is_of_old and are_alike(state, result.rank, rank) and _holds(state, result)

    known = list(filter(counts, reversed(state.drills)))
    if known and known[0].verdict not in PROVEN:
        return known[0]  # one of them may do the same as the others
    return next((result for result in known if result.rank == rank), None) or next(iter(known), None)


def are_alike(state: JobState, one: int, other: int) -> bool:
    """Return whether two ranks have the same role."""
    return one == other or (bool(state.roles) and state.roles[one] == state.roles[other])


def since(state: JobState, worker: str) -> int:
    """Return the generation in which a worker was the newcomer of its rank; -1: it has had it from the start."""
    known = state.workers.get(worker)
    assign = known.assign if known is not None else None
    return assign.generation if assign is not None and assign.newcomer else -1


def _holds(state: JobState, result: DrillResult) -> bool:
    """Return whether this result is a verdict that is still valid. A passed drill does not cover state that started to change later."""
    if result.number <= state.proofs_valid_after or result.verdict is DrillVerdict.BROKEN:
        return False
    return result.verdict not in PROVEN or changing(state) <= result.changing


def changing(state: JobState) -> frozenset[tuple[str, str]]:
    """Return the unregistered state that is known to change."""
    items = state.listed.items if state.listed is not None else ()
    return frozenset((item.root, item.shown) for item in items if item.kind != "registered")


def proven(state: JobState, rank: int) -> int:
    """Return the step of the drill that has proven this rank; -1: not proven."""
    found = verdict(state, rank)
    return found.step if found is not None and found.verdict in PROVEN else -1


def describe(state: JobState, rank: int) -> Text:
    """Describe the drills of a rank for the report of an incident."""
    found = verdict(state, rank)
    if found is None:
        return drills.UNPROVEN(rank=rank)
    which = f"rank {rank}" if found.rank == rank else f"rank {found.rank}, with the role of rank {rank},"
    if found.verdict not in PROVEN:
        return drills.FOUND_OTHERWISE(rank=rank, drill=found.number, of=found.rank, step=found.step, verdict=found.verdict)
    proof = drills.WAS_PROVEN_PARTLY if found.verdict is DrillVerdict.PARTLY else drills.WAS_PROVEN
    return proof(which=which, step=found.step, drill=found.number)


def turn(state: JobState) -> int:
    """Return the rank that is drilled next.

    In this order: one that an incident needs, one whose role has no verdict, one whose worker was not a newcomer, the one with the oldest
    drill.
    """
    last = {result.rank: result.number for result in state.drills}

    def order(rank: int) -> tuple[bool, bool, bool, int, int]:
        is_new = since(state, state.ranks[rank]) >= 0
        return not _is_awaited(state, rank), verdict(state, rank) is not None, is_new, last.get(rank, -1), rank

    return min(state.ranks, key=order)


def _is_awaited(state: JobState, rank: int) -> bool:
    """Return whether a drill of this rank may raise the grade of an incident.

    Its worker must have had the rank for long enough, and no such worker of this role has been drilled since.
    """
    held = since(state, state.ranks[rank])

    def counts(result: DrillResult, awaits: AwaitedDrills) -> bool:
        of_role = result.number > awaits.after and are_alike(state, result.rank, rank)
        return of_role and result.since <= awaits.held and result.verdict is not DrillVerdict.BROKEN

    open_ones = (one.awaits for one in state.incidents if one.awaits is not None and held <= one.awaits.held)
    alike = (awaits for awaits in open_ones if any(are_alike(state, rank, one) for one in awaits.ranks))
    return any(not any(counts(result, awaits) for result in state.drills) for awaits in alike)


def concluded(state: JobState, result: DrillResult) -> None:
    """Set the time of the next automatic drill after this one."""
    if result.verdict is DrillVerdict.BROKEN:
        others = (number for number, one in enumerate(reversed(state.drills)) if one.verdict is not DrillVerdict.BROKEN)
        in_a_row = next(others, len(state.drills))
        state.drill_after = state.now + LEAST * 2 ** min(in_a_row - 1, 10)
        return
    open_roles = any(_is_awaited(state, rank) or (bool(state.roles) and verdict(state, rank) is None) for rank in state.ranks)
    state.drill_next = 0
    state.drill_after = state.now + (result.pause / FIRST_SHARE if open_roles else max(LEAST, result.pause / SHARE))


def registered(state: JobState, event: Registered) -> None:
    """Record the roles, and end the verdicts if they have changed. The holder of rank 0 repeats this event."""
    if event.generation != state.generation or len(event.roles) != state.spec.world_size:
        state.ignore(event, RefusalReason.GENERATION if event.generation != state.generation else RefusalReason.UNKNOWN)
        return
    before = state.roles, state.fingerprint
    state.roles, state.fingerprint = event.roles, event.fingerprint
    if before[0] and before != (event.roles, event.fingerprint):
        _void(state, event.step)
        state.report(drills.PROOFS_VOID())
    elif not before[0] and any(incident.awaits is not None for incident in state.incidents):
        state.drill_after = 0.0  # a drill may now give results for other ranks


def listed(state: JobState, event: StateListed) -> None:
    """Record the state that the script changes."""
    before, known = {rank for rank in state.ranks if proven(state, rank) >= 0}, changing(state)
    state.listed = event
    if any(proven(state, rank) < 0 for rank in before):
        (root, shown), *more = sorted(changing(state) - known) or sorted(changing(state))
        state.drill_next, state.drill_after = event.step + state.spec.drill_at, 0.0
        state.report(drills.PROOFS_VOID_FOR(name=f"{shown} ({root})" if root else shown, more=f" and {len(more)} more" * bool(more)))


def _void(state: JobState, step: int) -> None:
    state.proofs_valid_after, state.drill_next, state.drill_after = state.drilled, step + state.spec.drill_at, 0.0
    for number, incident in enumerate(state.incidents):
        if incident.awaits is not None and incident.grade is not None:  # no drill can repeat what that step did
            regrade(state, number, incident.grade, grades.REGISTERED_SINCE(why=incident.why))


def regrade(state: JobState, index: int, grade: Grade, why: Text) -> None:
    """Give an incident that is over another grade or reason, permanently."""
    incident = state.incidents[index]
    state.incidents[index] = replace(incident, grade=grade, why=why, awaits=None, raised=grade is not incident.grade)
    state.emit(Record(IncidentGraded(incident.number, grade, why)))


def lost(state: JobState, incident: OpenIncident, rank: int) -> None:
    """Note in the incident whether the lost rank was proven to be survivable."""
    if state.spec.drill_at or state.drills:
        incident.note(describe(state, rank))


def redone(incident: OpenIncident) -> None:
    """Note in an incident that is over whether the redo matched the first attempt."""
    ranks = sorted(incident.proven_by)
    if ranks:
        who = f"rank {ranks[0]}: it" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}: they"
        incident.note(drills.REDO_PROVEN(who=who))


def survived(state: JobState, incident: OpenIncident) -> None:
    """Make drills due for ranks that were not proven, as soon as a spare is warm after the incident."""
    without = any(part.rank in state.ranks and verdict(state, part.rank) is None for part in incident.ranks)
    awaited = incident.awaits is not None and (not state.drills or state.drills[-1].verdict is not DrillVerdict.BROKEN)
    if awaited or (without and not incident.planned):
        state.drill_next, state.drill_after = 0, 0.0

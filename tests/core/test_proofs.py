"""Drills that begin by themselves: when, of whom, and what is proven by them."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned
from tests.message_texts import codes, has

from understudy.core import commands, events
from understudy.core.coverage import Replicas
from understudy.core.model import DrillVerdict, JobSpec
from understudy.core.proofs import LEAST, describe, proven, turn
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import disputes, drills, moves
from understudy.messages.base import Message

SAME, BROKEN, DIFFERENT = DrillVerdict.SAME, DrillVerdict.BROKEN, DrillVerdict.DIFFERENT


def job_of(ranks: int, drill_at: int = 20, **more: object) -> Job:
    return Job(JobSpec("job", ranks, ranks, spares=1, drill_at=drill_at, **more))  # type: ignore[arg-type]


def registered(job: Job, *roles: int, names: str = "a", step: int = 4) -> None:
    state = job.machine.state
    job.submit(events.Registered(state.holder(0).name, state.generation, step, roles, names))


def drill(job: Job, step: int, verdict: DrillVerdict = SAME, rank: int = -1, detail: str = "", pause: float = 0.0) -> int:
    """One that begins by itself at `step`, to its end; the rank."""
    said = job.submit(events.DrillAsked(rank, "", step))
    under_way = job.machine.state.drill
    assert under_way is not None, said
    job.submit(events.Prepared(under_way.worker, under_way.rank))
    job.submit(events.Drilled(under_way.worker, under_way.number, under_way.rank, verdict, step + 1, detail, pause=pause))
    job.warm()
    return under_way.rank


FAR = 1e9  # a time at which any drill is due


def next_due(job: Job, now: float = FAR) -> int:
    """The step from which on one is, at that time."""
    return next(step for step in range(10_000) if job.machine.drill_due(step, now))


def waits(job: Job) -> float:
    """Seconds from now to the next one, whatever the step."""
    return job.machine.state.drill_after - job.now


def test_one_of_each_role_first_and_then_whichever_is_the_longest_ago() -> None:
    job = job_of(4)
    registered(job, 0, 0, 1, 1)
    seen = []
    for step in (20, 21, 40, 60, 80, 100):
        seen.append((next_due(job), drill(job, step), waits(job) > 0))
    assert seen == [(20, 0, False), (20, 2, True), (20, 1, True), (20, 3, True), (20, 0, True), (20, 2, True)]
    assert [proven(job.machine.state, rank) for rank in range(4)] == [81, 41, 101, 61]


@pytest.mark.parametrize(("pause", "seconds"), [(0.0, LEAST), (0.03, LEAST), (0.5, 500.0)])
def test_drills_cost_a_thousandth_of_the_time(pause: float, seconds: float) -> None:
    job = job_of(2)
    registered(job, 0, 0)
    drill(job, 20, pause=pause)
    assert waits(job) == pytest.approx(seconds, abs=1.0)
    assert not job.machine.drill_due(10_000, job.now + 0.9 * seconds) and job.machine.drill_due(21, job.now + 1.1 * seconds)


def test_a_job_that_wants_none_has_none_by_itself() -> None:
    job = job_of(2, drill_at=0)
    assert not any(job.machine.drill_due(step, FAR) for step in range(10_000))
    assert job.machine.drill_refusal(-1) not in (moves.NO_SPARE(), moves.NO_SPARE_WARM())


def test_without_a_warm_spare_none_begins() -> None:
    job = job_of(2)
    (spare,) = job.machine.state.idle(WorkerState.WARM)
    job.lose(spare.name)
    assert not job.machine.drill_due(20, FAR)
    job.warm()
    assert job.machine.drill_due(20, FAR) and not job.machine.drill_due(19, FAR)


def test_one_of_which_nothing_came_is_tried_again_later_and_later() -> None:
    job = job_of(2)
    for doubled in (1, 2, 4):
        drill(job, 20, BROKEN)
        assert waits(job) == pytest.approx(doubled * LEAST, abs=1.0) and proven(job.machine.state, 0) == -1
    drill(job, 20)
    drill(job, 20, BROKEN)
    assert waits(job) == pytest.approx(LEAST, abs=1.0)


def test_one_that_a_person_asks_for_counts() -> None:
    job = job_of(2)
    job.submit(events.DrillAsked(1, ""))
    under_way = job.machine.state.drill
    assert under_way is not None
    job.lose(under_way.worker)
    job.warm()
    assert next_due(job) == 20
    drill(job, -1, rank=1)
    assert proven(job.machine.state, 1) == 0 and waits(job) > 0


def test_without_knowing_roles_a_rank_proves_itself_only() -> None:
    job = job_of(3)
    assert drill(job, 20) == 0
    assert [proven(job.machine.state, rank) for rank in range(3)] == [21, -1, -1]
    registered(job, 0, 1, 0)
    assert [proven(job.machine.state, rank) for rank in range(3)] == [21, -1, 21]
    assert describe(job.machine.state, 0) == drills.WAS_PROVEN(which="rank 0", step=21, drill=1)
    assert describe(job.machine.state, 2) == drills.WAS_PROVEN(which="rank 0, with the role of rank 2,", step=21, drill=1)
    assert describe(job.machine.state, 1) == drills.UNPROVEN(rank=1)


def test_a_rank_that_was_found_wrong_later_is_not_proven_any_more() -> None:
    job = job_of(2)
    drill(job, 20, SAME, rank=1)
    drill(job, 32, DIFFERENT, rank=1)
    assert proven(job.machine.state, 1) == -1
    assert describe(job.machine.state, 1) == drills.FOUND_OTHERWISE(rank=1, drill=2, of=1, step=33, verdict="different")
    drill(job, 64, BROKEN, rank=1)
    assert has(describe(job.machine.state, 1), drills.FOUND_OTHERWISE, drill=2), "of one that broke nothing is known"
    drill(job, 128, DrillVerdict.PARTLY, rank=1)
    assert describe(job.machine.state, 1) == drills.WAS_PROVEN_PARTLY(which="rank 1", step=129, drill=4)


def test_nothing_is_proven_of_what_is_registered_later() -> None:
    job = job_of(2)
    registered(job, 0, 0)
    drill(job, 20)
    registered(job, 0, 0)
    assert proven(job.machine.state, 1) == 21 and waits(job) > 0
    drill(job, 512)
    registered(job, 0, 0, names="b", step=600)
    assert proven(job.machine.state, 1) == -1 and next_due(job, job.now) == 620
    drill(job, 620)
    assert proven(job.machine.state, 1) == 621


def test_an_irrelevant_event_is_ignored() -> None:
    job = job_of(2)
    registered(job, 0, 0, 0)
    job.submit(events.Registered("w0", 7, 4, (0, 1), "a"))
    job.submit(events.Registered("w2", 0, 4, (0, 1), "a"))
    assert job.machine.state.roles == ()
    assert job.machine.state.refused == {
        ("Registered", RefusalReason.UNKNOWN): 1,
        ("Registered", RefusalReason.GENERATION): 1,
        ("Registered", RefusalReason.STATE): 1,
    }


@pytest.mark.parametrize("before", [True, False])
def test_an_incident_notes_whether_its_rank_was_proven_and_a_survivor_is_drilled_if_not(before: bool) -> None:
    job = job_of(2)
    if before:
        drill(job, 20, rank=1)
    newcomer = assigned(job.lose("w1")).worker
    incident = job.machine.state.incident
    assert incident is not None and incident.notes == [describe(job.machine.state, 1)]
    assert codes(incident.notes) == [(drills.WAS_PROVEN if before else drills.UNPROVEN).code]
    job.rest()
    job.verify()
    job.commit(1)
    job.warm()
    seen = [job.machine.state.phase, job.machine.state.ranks[1]]
    assert seen == [Phase.TRAINING, newcomer]
    assert (waits(job) > 0) == before and turn(job.machine.state) == 0


def test_an_incident_of_a_job_without_drills_does_not_mention_them() -> None:
    job = job_of(2, drill_at=0)
    job.lose("w1")
    assert job.machine.state.incident is not None and job.machine.state.incident.notes == []


@pytest.mark.parametrize("verdict", list(DrillVerdict))
def test_a_job_that_must_be_survivable_ends_if_it_is_not(verdict: DrillVerdict) -> None:
    job = job_of(2, require_drill=True)
    drill(job, 20, verdict, detail="module attribute net.drop.p is 0.1 on the rank and 0.3 on the spare")
    ended = job.machine.state.ended
    assert (ended is not None) == (verdict in (DIFFERENT, DrillVerdict.NOT_REPRODUCIBLE))
    assert ended is None or (ended.exit_code == 3 and "net.drop.p" in ended.message and has(ended.message, drills.REQUIRED))


def test_the_table_of_names_gives_the_roles() -> None:
    table = Replicas(
        {"a/parameter/w": (0, 0, -1, -1), "b/parameter/w": (-1, -1, 0, 1), "c": (0, 1, 2, 3), "a/parameter/w/gradient": (0, -1, -1, -1)}
    )
    roles, names = table.roles()
    assert roles == (0, 0, 1, 1)
    assert Replicas({**table.classes, "b/parameter/w": (-1, -1, 5, 5)}).roles() == (roles, names), "who is whose replica is no matter"
    assert Replicas({**table.classes, "d": (0, 0, 0, 0)}).roles() != (roles, names)


@pytest.mark.parametrize("drilled", [[0], [0, 1]])
def test_ranks_hear_whether_all_newcomers_were_proven(drilled: list[int]) -> None:
    """Then nothing waits in their first transaction."""
    job = Job(JobSpec("job", 3, 3, spares=2, drill_at=20))
    for number, rank in enumerate(drilled):
        drill(job, 20 << number, rank=rank)
    job.lose("w0", "w1")
    said = [command for command in job.rest() if isinstance(command, commands.Recover)]
    assert len(said) == 3 and {command.proven for command in said} == {len(drilled) == 2}


def test_nothing_is_proven_without_a_newcomer() -> None:
    job = job_of(2)
    drill(job, 20, rank=1)
    job.submit(events.CommunicationBroken("w0", 0, "reset"))
    job.submit(events.Expired("communication"))
    assert not any(command.proven for command in job.rest() if isinstance(command, commands.Recover))


def test_a_table_of_a_generation_that_is_over_is_refused_as_such() -> None:
    job = job_of(2)
    job.submit(events.Registered("w0", 7, 4, (0, 1), "a"))
    assert job.machine.state.refused == {("Registered", RefusalReason.GENERATION): 1}


def test_what_a_rank_has_compared_is_of_no_matter_when_its_incident_is_over() -> None:
    """An agent that has connected again repeats its earlier events."""
    job = job_of(2)
    job.lose("w1")
    job.rest()
    job.verify()
    generation, members = job.machine.state.generation, [worker.name for worker in job.machine.state.members()]
    said = [events.Committed(name, generation, 1, 2, compared=1) for name in members]
    for event in said:
        job.submit(event)
    (incident,) = job.machine.state.incidents
    assert incident.proven_by == (0, 1)
    for event in said:
        assert job.submit(event) == []
    assert job.machine.state.incidents == [incident]


def redoing(job: Job) -> None:
    """Rank 1 is lost in a step, and all ranks do it again."""
    job.lose("w1")
    job.rest()
    job.verify()


def redo_differs(job: Job, partly: bool, sure: bool) -> None:
    state = job.machine.state
    job.submit(events.RedoDiffers("w0", state.generation, 1, 1, "what goes into collective 0 is not the same", partly, sure))


@pytest.mark.parametrize(
    ("partly", "sure", "drilled", "message"),
    [
        (True, True, SAME, disputes.REDO_HELD),
        (True, False, SAME, disputes.REDO_UNPROVEN),
        (True, True, DrillVerdict.PARTLY, disputes.REDO_UNPROVEN),
        (True, True, None, disputes.REDO_UNPROVEN),
        (True, True, DIFFERENT, disputes.REDO_AS_DRILLED),
        (True, False, DIFFERENT, disputes.REDO_AS_DRILLED),
        (True, True, DrillVerdict.NOT_REPRODUCIBLE, disputes.REDO_NOT_REPRODUCIBLE),
        (False, False, SAME, disputes.REDO_HELD),
        (False, False, None, disputes.REDO_HELD),
        (False, False, DIFFERENT, disputes.REDO_HELD),
    ],
)
def test_a_collective_that_differs_in_a_redo_holds_the_job_only_where_a_drill_has_passed(
    partly: bool, sure: bool, drilled: DrillVerdict | None, message: Message
) -> None:
    """Without one, or where it is not issued in every step, it may be a time that is summed up for a person."""
    job = job_of(2)
    registered(job, 0, 0)
    if drilled is not None:
        drill(job, 20, drilled, detail="a counter moves")
    redoing(job)
    redo_differs(job, partly, sure)
    state = job.machine.state
    assert (state.dispute is not None) == (message is disputes.REDO_HELD)
    assert state.incident is not None and has("\n".join(state.incident.notes), message, rank=0)
    assert state.incident.differed and ("a counter moves" in state.incident.notes[-1]) == (message is disputes.REDO_AS_DRILLED)


def test_an_incident_counts_the_collectives_of_the_redo_with_the_same_input() -> None:
    job = job_of(3)
    redoing(job)
    generation = job.machine.state.generation
    for worker, collectives, size in (
        ("w0", (2, 3), (80, 100)),
        ("w0", (2, 3), (80, 100)),
        ("w2", (1, 3), (20, 100)),
        ("w3", (0, 0), (0, 0)),
    ):
        job.submit(events.Committed(worker, generation, 1, 2, 0, collectives, size))
    (incident,) = job.machine.incidents()
    assert (incident.collectives, incident.compared) == ((3, 6), (100, 200))

"""The grade of an incident, for every kind of incident and for every reason that rules one out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.core.core_job import Job, assigned, moving, of
from tests.core.test_proofs import drill, registered
from tests.message_texts import has

from understudy.core import commands, events, proofs
from understudy.core.machine import MOST_NOTICES
from understudy.core.model import (
    BuddyCopyRef,
    DrillVerdict,
    Evidence,
    Grade,
    Incident,
    JobSpec,
    LossCause,
    Position,
    Unproven,
    VotePhase,
)
from understudy.core.proofs import proven
from understudy.core.transitions import Phase
from understudy.messages import coverage, forming, grades, newcomers, recoveries, script
from understudy.messages.base import Message

PROVEN, DRILLED, UNPROVEN = Grade
FIRST, SAME, NOTHING, DIFFERENT = Evidence.FIRST, Evidence.SAME, Evidence.NOTHING, Evidence.DIFFERENT
PASSED = DrillVerdict.SAME


def job_of(ranks: int = 3, spares: int = 1, **more: object) -> Job:
    job = Job(JobSpec("job", ranks, ranks, spares=spares, drill_at=20, **more))  # type: ignore[arg-type]
    registered(job, *([0] * ranks))
    return job


@dataclass(frozen=True)
class Said:
    """Of a rank's first commit."""

    evidence: Evidence = SAME
    collectives: tuple[int, int] = (4, 4)
    uncovered: tuple[str, ...] = ()


def commit(job: Job, said: dict[int, Said], transaction: int = 1, step: int = 2) -> list[commands.Command]:
    state = job.machine.state
    out = []
    for worker in state.members():
        one = said.get(worker.rank, Said())
        size = (one.collectives[0] * 10, one.collectives[1] * 10)
        out += job.submit(
            events.Committed(worker.name, state.generation, transaction, step, 0, one.collectives, size, one.evidence, one.uncovered)
        )
    return out


def only(job: Job) -> Incident:
    (incident,) = job.machine.incidents()
    assert incident.seconds >= 0, "it is over"
    return incident


def redone(job: Job, said: dict[int, Said], *lost: str, step: int = 2) -> Incident:
    """Workers are lost in a step, or rank 1's, and all ranks do it again."""
    job.lose(*(lost or ("w1",)))
    job.rest()
    job.verify()
    commit(job, said, step=step)
    return only(job)


IN_PART = Said(SAME, (1, 4))


@pytest.mark.parametrize(
    ("survivors", "newcomer", "drilled", "grade", "why"),
    [
        (Said(), Said(), None, PROVEN, grades.COMPARED),
        (Said(), Said(), PASSED, PROVEN, grades.COMPARED),
        (Said(FIRST), Said(), None, PROVEN, grades.COMPARED),
        (IN_PART, Said(), None, UNPROVEN, grades.NOT_DRILLED),
        (Said(), IN_PART, None, UNPROVEN, grades.NOT_DRILLED),
        (IN_PART, IN_PART, PASSED, PROVEN, grades.COMPARED),
        (Said(), Said(SAME, (0, 0)), None, UNPROVEN, grades.NOT_DRILLED),
        (Said(), Said(NOTHING), None, UNPROVEN, grades.NOT_DRILLED),
        (Said(), Said(NOTHING), PASSED, DRILLED, grades.DRILLED),
        (Said(FIRST), Said(NOTHING), PASSED, DRILLED, grades.DRILLED),
        (Said(), Said(NOTHING), DrillVerdict.PARTLY, UNPROVEN, grades.NOT_DRILLED),
        (Said(), Said(NOTHING), DrillVerdict.BROKEN, UNPROVEN, grades.NOT_DRILLED),
        (Said(), Said(), DrillVerdict.DIFFERENT, UNPROVEN, grades.DRILL_FAILED),
        (Said(), Said(), DrillVerdict.NOT_REPRODUCIBLE, UNPROVEN, grades.DRILL_FAILED),
        (Said(NOTHING), Said(), PASSED, UNPROVEN, grades.NOT_COMPARED),
        (Said(DIFFERENT), Said(), PASSED, UNPROVEN, grades.NOT_COMPARED),
        (Said(), Said(DIFFERENT), PASSED, UNPROVEN, grades.NOT_COMPARED),
        (Said(uncovered=("net.seen (a.py)",)), Said(), PASSED, UNPROVEN, grades.UNCOVERED),
        (Said(), Said(uncovered=("net.seen (a.py)",)), PASSED, UNPROVEN, grades.UNCOVERED),
    ],
)
def test_of_a_step_that_is_redone(survivors: Said, newcomer: Said, drilled: DrillVerdict | None, grade: Grade, why: Message) -> None:
    job = job_of()
    if drilled is not None:
        drill(job, 20, drilled, rank=1, detail="a counter moves")
    incident = redone(job, {0: survivors, 1: newcomer, 2: Said()})
    assert incident.grade is grade and has(incident.why, why), incident.why
    if why is grades.DRILL_FAILED:
        assert "a counter moves" in incident.why
    if why is grades.COMPARED:
        same = sum(one.collectives[0] for one in (survivors, newcomer, Said()))
        assert f"({same} of the 12 collectives of the redo were compared and match, {100 * same / 12:.0f} % of the bytes)" in incident.why


def test_of_a_section_which_no_drill_has_seen() -> None:
    cases = ((Said(NOTHING), UNPROVEN, grades.SECTION), (IN_PART, UNPROVEN, grades.SECTION), (Said(), PROVEN, grades.COMPARED))
    for newcomer, grade, why in cases:
        job = job_of()
        drill(job, 20, PASSED, rank=1)
        incident = redone(job, {1: newcomer}, step=1)
        assert incident.grade is grade and has(incident.why, why), incident.why


def test_of_several_losses_the_weakest_counts() -> None:
    job = job_of(4, spares=2)
    drill(job, 20, PASSED, rank=1)
    job.submit(events.Registered("w0", 0, 30, (0, 1, 2, 3), "b"))  # no rank has the role of another, and nothing is proven of any
    drill(job, 31, PASSED, rank=1)
    incident = redone(job, {1: Said(NOTHING), 2: Said(NOTHING)}, "w1", "w2")
    assert incident.grade is UNPROVEN and has(incident.why, grades.NOT_DRILLED, rank=2)
    job.warm()
    drill(job, 40, PASSED, rank=2)
    job.lose(*(job.machine.state.ranks[rank] for rank in (1, 2)))
    job.rest(2)
    job.verify()
    commit(job, {1: Said(NOTHING), 2: Said(NOTHING)}, 2, 3)
    again = job.machine.incidents()[-1]
    assert again.grade is DRILLED and has(again.why, grades.DRILLED) and again.why.count(" passed at step ") == 2


def test_what_a_newcomer_that_was_lost_again_had_given_stays_in_the_state() -> None:
    """It had committed, so that its gradients are in what all others have."""
    job = job_of(3, spares=2)
    job.lose("w1")
    job.rest()
    job.verify()
    state = job.machine.state
    first = state.ranks[1]
    job.submit(events.Committed(first, state.generation, 1, 2, 0, (0, 4), (0, 40), NOTHING))
    job.lose(first)
    for name in sorted(state.recovery.waiting if state.recovery else ()):
        copies = tuple(BuddyCopyRef(rank, 1) for rank in range(3))
        job.submit(events.Quiesced(name, state.generation, Position(1, VotePhase.VOTED), copies, 1))
    job.verify()
    commit(job, {}, 2, 3)
    incident = only(job)
    assert (incident.decision, incident.grade) == ("roll forward", UNPROVEN) and has(incident.why, grades.NOT_DRILLED, rank=1)


@pytest.mark.parametrize("drilled", [True, False])
def test_of_a_vote_that_is_rolled_forward(drilled: bool) -> None:
    """Nothing is redone: the newcomer has the state, and nothing shows that it goes on as the lost worker would have."""
    job = job_of()
    if drilled:
        drill(job, 20, PASSED, rank=1)
    job.lose("w1")
    state = job.machine.state
    copies = tuple(BuddyCopyRef(rank, 1) for rank in range(3))
    for name in sorted(state.recovery.waiting if state.recovery else ()):
        job.submit(events.Quiesced(name, state.generation, Position(1, VotePhase.VOTED), copies, 1))
    job.verify()
    commit(job, {0: Said(FIRST, (0, 0)), 1: Said(NOTHING, (0, 0)), 2: Said(FIRST, (0, 0))}, 2, 3)
    incident = only(job)
    assert (incident.decision, incident.grade) == ("roll forward", DRILLED if drilled else UNPROVEN), incident


@pytest.mark.parametrize("drilled", [True, False])
def test_of_a_planned_move(drilled: bool) -> None:
    job = job_of()
    if drilled:
        drill(job, 20, PASSED, rank=1)
    newcomer = moving(job, 1)
    job.verify()
    commit(job, {0: Said(FIRST, (0, 0)), 1: Said(NOTHING, (0, 0)), 2: Said(FIRST, (0, 0))})
    incident = only(job)
    assert job.machine.state.ranks[1] == newcomer
    assert (incident.planned, incident.decision, incident.grade) == (True, "boundary", DRILLED if drilled else UNPROVEN), incident


@pytest.mark.parametrize(
    ("redo", "drilled", "grade", "why"),
    [
        (Said(), None, PROVEN, grades.NO_NEWCOMER),
        (Said(FIRST, (0, 0)), None, PROVEN, grades.NO_NEWCOMER),
        (IN_PART, None, UNPROVEN, grades.NOT_DRILLED),
        (IN_PART, PASSED, PROVEN, grades.NO_NEWCOMER),
        (Said(), DrillVerdict.DIFFERENT, UNPROVEN, grades.DRILL_FAILED),
    ],
)
def test_of_a_recovery_in_place(redo: Said, drilled: DrillVerdict | None, grade: Grade, why: Message) -> None:
    job = job_of()
    if drilled is not None:
        drill(job, 20, drilled, rank=1)
    job.submit(events.CommunicationBroken("w0", 0, "reset"))
    job.submit(events.Expired("communication"))
    job.rest()
    commit(job, {0: redo})
    incident = only(job)
    assert incident.grade is grade and has(incident.why, why), incident.why


def test_a_later_drill_of_the_role_that_has_failed_counts_more_than_an_earlier_one_of_the_rank() -> None:
    job = job_of()
    drill(job, 20, PASSED, rank=1)
    drill(job, 40, DrillVerdict.DIFFERENT, rank=0, detail="a counter moves")
    incident = redone(job, {1: Said(NOTHING)})
    assert incident.grade is UNPROVEN and has(incident.why, grades.DRILL_FAILED, drill=2) and "a counter moves" in incident.why


def listed(*names: str) -> events.StateListed:
    return events.StateListed("w0", 30, tuple(events.StateItem(name, "a.py", "adopted", True, 8) for name in names))


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("survivor", [Said(), IN_PART])
def test_a_drill_after_an_incident_raises_its_grade(survivor: Said, step: int) -> None:
    """Unless the redo of a first step was compared in part only: a first step may do what no other does."""
    job = job_of()
    state = job.machine.state
    job.lose("w1")
    copies = tuple(BuddyCopyRef(rank, 0) for rank in range(3))
    for name in sorted(state.recovery.waiting if state.recovery else ()):
        job.submit(events.Quiesced(name, state.generation, Position(1, VotePhase.RUNNING), copies, step))
    job.verify()
    commit(job, {0: survivor, 1: Said(NOTHING)}, step=step + 1)
    before = only(job)
    assert before.grade is UNPROVEN and has(before.why, grades.NOT_DRILLED)
    job.warm()
    assert job.machine.drill_due(30, 0.0) and proofs.turn(state) == 0
    job.submit(events.DrillAsked(2, "", 30))
    assert state.drill is not None
    spare = state.drill.worker
    job.submit(events.Prepared(spare, 2))
    last = job.submit(events.Drilled(spare, state.drill.number, 2, PASSED, 31, ""))
    reported = of(commands.Tell, last)
    after = only(job)
    if survivor is IN_PART and not step:
        assert after == before
        return
    assert after.grade is DRILLED and has(after.why, grades.DRILLED_LATER) and after.raised
    assert "drill 1 of rank 2 passed at step 31, after the incident" in after.why
    assert any(has(text, grades.RAISED, number=1) for text in (one.text for one in reported))
    (recorded,) = of(commands.Record, last)
    assert recorded.event == events.IncidentGraded(1, DRILLED, after.why)
    before_that = job.machine.incidents()
    job.submit(recorded.event)
    assert job.machine.incidents() == before_that


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (DrillVerdict.DIFFERENT, grades.DRILL_FAILED),
        (DrillVerdict.NOT_REPRODUCIBLE, grades.DRILL_FAILED),
        (DrillVerdict.PARTLY, grades.NOT_DRILLED),
        (DrillVerdict.BROKEN, grades.NOT_DRILLED),
    ],
)
def test_only_a_drill_that_passes_raises_a_grade(verdict: DrillVerdict, why: Message) -> None:
    job = job_of()
    redone(job, {1: Said(NOTHING)})
    job.warm()
    drill(job, 30, verdict, rank=2)
    assert only(job).grade is UNPROVEN and has(only(job).why, why)
    job.warm()
    drill(job, 40, PASSED, rank=0)
    assert only(job).grade is (DRILLED if why is grades.NOT_DRILLED else UNPROVEN)


def test_a_newcomer_of_the_incident_shows_nothing() -> None:
    """A spare and a newcomer lack the same, so that they agree."""
    job = job_of()
    redone(job, {1: Said(NOTHING)})
    job.warm()
    assert proofs.turn(job.machine.state) == 0
    drill(job, 30, PASSED, rank=1)
    assert only(job).grade is UNPROVEN and proofs.turn(job.machine.state) == 0
    job.warm()
    drill(job, 40, PASSED, rank=0)
    assert only(job).grade is DRILLED


@pytest.mark.parametrize("before", [True, False])
def test_a_drill_of_a_newcomer_does_not_cover_an_older_worker(before: bool) -> None:
    """Rank 1 was lost, and then rank 0, which has been there from the start: only a drill of another such rank shows something."""
    job = job_of(2, spares=1)
    redone(job, {1: Said(NOTHING)})
    job.warm()
    if before:
        drill(job, 30, PASSED, rank=1)
    job.lose("w0")
    job.rest(2)
    job.verify()
    commit(job, {0: Said(NOTHING)}, 2, 3)
    job.warm()
    drill(job, 40, PASSED, rank=1)
    assert [incident.grade for incident in job.machine.incidents()] == [UNPROVEN, UNPROVEN]


def test_a_drill_that_fails_counts_whatever_rank_of_the_incident_it_is_of() -> None:
    job = job_of(4, spares=2)
    registered(job, 0, 0, 1, 1)
    redone(job, {1: Said(NOTHING), 2: Said(NOTHING)}, "w1", "w2")
    for rank, verdict in ((0, PASSED), (0, DrillVerdict.DIFFERENT), (3, PASSED)):
        job.warm()
        drill(job, 30, verdict, rank=rank, detail="a counter moves")
    assert only(job).grade is UNPROVEN and has(only(job).why, grades.DRILL_FAILED, drill=2)


def test_a_warning_between_an_incident_and_its_drill_counts() -> None:
    job = job_of()
    redone(job, {1: Said(NOTHING)})
    job.submit(events.Notice("w0", 0, str(script.USED_BETWEEN(what="model at train.py:30"))))
    job.warm()
    drill(job, 30, PASSED, rank=0)
    assert only(job).grade is UNPROVEN and has(only(job).why, grades.WARNED)


def test_a_warning_is_kept_however_many_other_notices_there_are() -> None:
    job = job_of()
    for number in range(MOST_NOTICES + 1):
        job.submit(events.Notice("w0", 0, f"US4712: {number}"))
    for where in ("a.py:1", "b.py:2"):
        job.submit(events.Notice("w0", 0, str(script.USED_BETWEEN(what=where))))
    notices = job.machine.state.notices
    assert len(notices) == MOST_NOTICES + 1 and "a.py:1" in notices[-1]


def test_a_drill_in_part_is_not_awaited_again() -> None:
    job = job_of()
    drill(job, 20, DrillVerdict.PARTLY, rank=0, pause=1.0)
    assert redone(job, {1: Said(NOTHING)}).awaits is None and not job.machine.drill_due(10_000, job.now + 1.0)


def test_before_roles_are_known_the_rank_that_is_awaited_is_drilled_first() -> None:
    job = Job(JobSpec("job", 3, 3, spares=2, drill_at=20))
    redone(job, {1: Said(NOTHING), 2: Said(NOTHING)}, "w1", "w2")
    job.warm()
    drill(job, 30, PASSED, rank=0, pause=1.0)
    assert only(job).grade is UNPROVEN, "the ranks like rank 0 are unknown"
    registered(job, 0, 0, 0, step=31)
    assert proofs.turn(job.machine.state) == 0 and job.machine.drill_due(31, job.now)
    job.warm()
    drill(job, 32, PASSED, rank=0)
    assert only(job).grade is DRILLED


def test_a_drill_after_an_incident_covers_what_was_known_to_change() -> None:
    job = job_of()
    job.submit(listed("x"))
    redone(job, {1: Said(NOTHING)})
    job.warm()
    job.submit(listed())  # the rank that lists is a newcomer, which has seen nothing yet
    drill(job, 30, PASSED, rank=2)
    assert only(job).grade is UNPROVEN
    job.submit(listed("x", "y"))
    job.warm()
    drill(job, 40, PASSED, rank=2)
    assert only(job).grade is DRILLED


def test_each_rank_that_lacks_a_drill_needs_one_of_its_role() -> None:
    job = job_of(4, spares=2)
    registered(job, 0, 0, 1, 1)
    redone(job, {1: Said(NOTHING), 2: Said(NOTHING)}, "w1", "w2")
    job.warm()
    drill(job, 30, PASSED, rank=0)
    assert only(job).grade is UNPROVEN and proofs.turn(job.machine.state) in (2, 3)
    job.warm()
    drill(job, 31, PASSED, rank=3)
    assert only(job).grade is DRILLED and only(job).why.count(" passed at step ") == 2


def test_no_drill_of_other_registrations_raises_a_grade() -> None:
    job = job_of()
    redone(job, {1: Said(NOTHING)})
    job.submit(events.Registered("w0", job.machine.state.generation, 29, (0, 0, 0), "b"))
    assert only(job).grade is UNPROVEN and only(job).awaits is None and has(only(job).why, grades.REGISTERED_SINCE)
    job.warm()
    drill(job, 30, PASSED, rank=0)
    assert only(job).grade is UNPROVEN


def test_a_change_that_only_some_drills_have_seen_voids_the_others_only() -> None:
    job = job_of(4)
    registered(job, 0, 0, 1, 1)
    job.submit(listed("x"))
    drill(job, 20, PASSED, rank=0)
    state = job.machine.state
    job.submit(events.DrillAsked(2, "", 21))
    assert state.drill is not None
    job.submit(events.Prepared(state.drill.worker, 2))
    seen = (("a.py", "x"), ("a.py", "y"))
    job.submit(events.Drilled(state.drill.worker, state.drill.number, 2, PASSED, 22, "", changing=seen))
    job.warm()
    reported = of(commands.Tell, job.submit(listed("x", "y")))
    assert [proven(state, rank) >= 0 for rank in (0, 2)] == [False, True] and len(reported) == 1


@pytest.mark.parametrize("protected", [True, False])
def test_of_a_loss_before_anything_was_committed(protected: bool) -> None:
    """A script that is not protected may have computed something."""
    job = Job(JobSpec("job", 2, 2, spares=1), forming=True)
    job.warm()
    if not protected:
        job.submit(events.Notice("w0", 0, script.OWN_PROCESS_GROUP(where="train.py:3")))
    job.lose(job.machine.state.ranks[1])
    reported = []
    for name in sorted(job.machine.state.recovery.waiting if job.machine.state.recovery else ()):
        place = Position(-1, VotePhase.RUNNING)
        reported += of(commands.Tell, job.submit(events.Quiesced(name, job.machine.state.generation, place, (), 0)))
    assert any(has(tell, forming.RESTARTS if protected else forming.RESTARTS_UNPROTECTED, restarts=1) for tell in reported)
    job.warm()
    commit(job, {}, 0, 1)
    incident = only(job)
    expected = (PROVEN, grades.STARTED_OVER) if protected else (Grade.UNPROVEN, grades.NOT_PROTECTED)
    assert (incident.decision, incident.grade) == ("start anew", expected[0]) and has(incident.why, expected[1])


def test_a_rank_that_was_corrupt_is_not_proven() -> None:
    job = job_of()
    drill(job, 20, PASSED, rank=1)
    job.submit(events.ReplicasDiffer("w0", 0, (1,), ((0, 2), (1,)), "net.weight is not the same"))
    job.rest()
    job.verify()
    commit(job, {})
    incident = only(job)
    assert incident.ranks[0].cause is LossCause.CORRUPT and incident.grade is UNPROVEN and has(incident.why, grades.CORRUPT, rank=1)


def test_a_job_that_an_operator_had_to_decide_is_not_proven() -> None:
    job = job_of(2)
    job.submit(events.ReplicasDiffer("w0", 0, (), ((0,), (1,)), "net.weight is not the same"))
    job.rest()
    job.submit(events.Believed(0, "I have looked"))
    job.rest()
    job.verify()
    commit(job, {})
    assert only(job).grade is UNPROVEN and has(only(job).why, grades.DECIDED, who="an operator")


def test_a_redo_that_differs_is_named() -> None:
    job = job_of()
    job.lose("w1")
    job.rest()
    job.verify()
    state = job.machine.state
    job.submit(events.RedoDiffers("w0", state.generation, 1, 1, "what goes into collective 0 is not the same", True, False))
    job.rest()
    commit(job, {0: Said(DIFFERENT)})
    incident = only(job)
    assert incident.grade is UNPROVEN and has(incident.why, grades.DIFFERED) and "collective 0" in incident.why


def test_state_that_changes_after_a_drill_invalidates_it() -> None:
    def listed(*names: str) -> events.StateListed:
        items = [events.StateItem("net", "", "registered", True, 8)]
        items += [events.StateItem(name, "train.py", "adopted", True, 8) for name in names]
        return events.StateListed("w0", 30, tuple(items))

    for later, grade in (("seen",), DRILLED), (("seen", "count"), UNPROVEN), ((), DRILLED):
        job = job_of()
        job.submit(listed("seen"))
        drill(job, 20, PASSED, rank=1)
        said_then = of(commands.Tell, job.submit(listed(*later)))
        assert bool(said_then) == (grade is UNPROVEN)
        assert job.machine.drill_due(50, 1e9) and job.machine.state.listed == listed(*later)
        assert redone(job, {1: Said(NOTHING)}).grade is grade


def test_what_the_job_warned_of_rules_a_grade_out_where_there_is_a_newcomer() -> None:
    warning = script.USED_BETWEEN(what="model at train.py:30")
    job = job_of()
    drill(job, 20, PASSED, rank=1)
    job.submit(events.Notice("w0", 0, str(coverage.ADOPTED(names="seen"))))
    assert redone(job, {1: Said(NOTHING)}).grade is DRILLED
    job.submit(events.Notice("w0", 0, str(warning)))
    job.warm()
    for lost in ("w2", ""):
        if lost:
            job.lose(lost)
        else:
            job.submit(events.CommunicationBroken("w0", job.machine.state.generation, "reset"))
            job.submit(events.Expired("communication"))
        job.rest(2)
        job.verify()
        commit(job, {2: Said(NOTHING)} if lost else {}, 2, 3)
    warned, in_place = job.machine.incidents()[1:]
    assert warned.grade is UNPROVEN and has(warned.why, grades.WARNED) and "model at train.py:30" in warned.why and warned.awaits is None
    assert in_place.grade is PROVEN


def test_what_a_newcomer_reports_counts_for_its_incident_only() -> None:
    job = job_of()
    drill(job, 20, PASSED, rank=1)
    job.lose("w1")
    job.rest()
    for worker in job.machine.state.newcomers():
        job.submit(
            events.Verified(worker.name, job.machine.state.generation, 3, (str(newcomers.CHANGE_LOST(point="step", transaction=1)),))
        )
    commit(job, {1: Said(NOTHING)})
    assert only(job).grade is UNPROVEN and has(only(job).why, grades.WARNED) and "rank 1: US4514" in only(job).why
    job.warm()
    job.lose("w2")
    job.rest(2)
    job.verify()
    commit(job, {2: Said(NOTHING)}, 2, 3)
    assert job.machine.incidents()[1].grade is DRILLED


def test_workers_of_an_earlier_version_give_no_grade() -> None:
    incident = redone(job_of(), {0: Said(Evidence.UNSAID)})
    assert (incident.grade, incident.why) == (None, "")


def test_the_lines_of_an_incident_and_of_the_job_have_the_grade() -> None:
    job = job_of()
    job.lose("w1")
    job.rest()
    job.verify()
    reported = [command.text for command in of(commands.Tell, commit(job, {1: Said(NOTHING)}))]
    (over,) = [text for text in reported if has(text, recoveries.INCIDENT_OVER)]
    assert "no step lost; unproven: " in over and any(has(text, grades.WARNING, number=1) for text in reported)
    job.warm()
    job.lose(job.machine.state.ranks[2])
    job.rest(2)
    job.verify()
    reported = [command.text for command in of(commands.Tell, commit(job, {}, 2, 3))]
    assert "no step lost; proven: " in "\n".join(reported) and not any(has(text, grades.WARNING) for text in reported)
    for worker in job.machine.state.members():
        job.submit(events.Finished(worker.name, job.machine.state.generation, 3))
    ended = job.machine.state.ended
    assert ended is not None and "2 incidents (1 proven, 1 UNPROVEN)" in ended.message


@pytest.mark.parametrize("newcomer", [Said(), Said(NOTHING)])
def test_a_job_may_wait_for_a_decision_after_what_is_unproven(newcomer: Said) -> None:
    job = job_of(unproven=Unproven.PAUSE)
    incident = redone_once(job, newcomer)
    state = job.machine.state
    if newcomer == Said():
        assert incident.grade is PROVEN and state.dispute is None and state.phase is Phase.TRAINING
        return
    assert incident.grade is UNPROVEN and state.dispute is not None and has(state.dispute.detail, grades.PAUSED, number=1)
    job.rest(2)
    phases = [job.machine.state.phase]
    assert job.machine.belief_refusal(0) == ""
    job.submit(events.Believed(2, "it is of no consequence"))
    phases.append(job.machine.state.phase)
    assert phases == [Phase.QUIESCING, Phase.RESUMING], "it waits for that"
    commit(job, {}, 2, 3)
    assert [one.grade for one in job.machine.incidents()] == [UNPROVEN, PROVEN] and state.phase is Phase.TRAINING, "no worker is new in it"
    assert assigned(job.lose("w0")).rank == 0


def test_what_is_lost_while_a_job_waits_is_decided_once_more() -> None:
    """The operator could not judge a redo that had not happened."""
    job = job_of(unproven=Unproven.PAUSE)
    redone_once(job, Said(NOTHING))
    job.lose("w2")
    job.rest(2)
    job.submit(events.Believed(0, "it is of no consequence"))
    job.verify()
    commit(job, {2: Said(NOTHING)}, 2, 3)
    assert [one.grade for one in job.machine.incidents()[:2]] == [UNPROVEN, UNPROVEN] and job.machine.state.dispute is not None


def redone_once(job: Job, newcomer: Said) -> Incident:
    job.lose("w1")
    job.rest()
    job.verify()
    commit(job, {1: newcomer})
    job.warm()
    return job.machine.incidents()[0]

"""Drills: what refuses one, what it is sent and when, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.core_job import Job, moving, of

from understudy.core import commands, events
from understudy.core.drill import refusal
from understudy.core.model import DrillVerdict, JobSpec
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import drills, moves

PLAIN = moves.NOT_SETTLED()


def asked(job: Job, rank: int = 1) -> str:
    """The spare that sets up for a drill of this rank."""
    (prepare,) = of(commands.Prepare, job.submit(events.DrillAsked(rank, "asked")))
    assert job.machine.state.workers[prepare.worker].state is WorkerState.DRILLING
    return prepare.worker


def test_what_refuses_a_drill() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2), forming=True)
    assert refusal(job.machine.state, 0) == PLAIN
    job.warm()
    assert refusal(job.machine.state, 0) == PLAIN, "no rank has committed"
    job.submit(events.Committed("w0", 0, 0, 1))
    assert refusal(job.machine.state, 0) == PLAIN, "one has not"
    job.commit(0)
    assert refusal(job.machine.state, 0) == ""
    assert refusal(job.machine.state, 2) == moves.NO_SUCH_RANK(rank=2, last=1)
    asked(job)
    assert refusal(job.machine.state, 0) == drills.UNDER_WAY(rank=1)
    job.submit(events.StopAsked("enough", 0))
    assert refusal(job.machine.state, 0) == moves.JOB_OVER()


def test_no_drill_while_a_rank_moves_or_when_one_has_finished() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    job.submit(events.MigrationAsked(1, "asked"))
    assert refusal(job.machine.state, 0) == moves.ALREADY_MIGRATING(rank=1)
    job = Job(JobSpec("job", 2, 2, spares=2))
    job.submit(events.Finished("w1", 0, 1))
    assert refusal(job.machine.state, 0) == moves.ABOUT_TO_FINISH()
    job.lose("w1")
    assert refusal(job.machine.state, 0) == moves.ABOUT_TO_FINISH()


def test_a_spare_that_reports_twice_that_it_is_ready_begins_once() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    spare = asked(job)
    assert [drill.worker for drill in of(commands.Drill, job.submit(events.Prepared(spare, 1)))] == ["w1", spare]
    assert job.submit(events.Prepared(spare, 1)) == []


def test_a_verdict_of_another_drill_is_counted_and_nothing_else() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.DrillBroken("w1", 1, "the spare did not come"))
    spare = asked(job)
    for drill, rank in ((7, 1), (1, 0)):
        job.submit(events.Drilled(spare, drill, rank, DrillVerdict.SAME, 1, ""))
    for worker, drill in (("w1", 7), ("w0", 1)):
        job.submit(events.DrillBroken(worker, drill, "the spare did not come"))
    assert job.machine.state.refused == {("Drilled", RefusalReason.OVER): 2, ("DrillBroken", RefusalReason.OVER): 3}
    assert job.machine.state.drills == [] and job.machine.state.drill is not None


@pytest.mark.parametrize("running", [True, False])
def test_a_drill_that_takes_too_long_ends_and_reports_its_progress(running: bool) -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    spare = asked(job)
    if running:
        job.submit(events.Prepared(spare, 1))
    said = job.submit(events.Expired("drill"))
    assert [kill.worker for kill in of(commands.KillWorker, said)] == [spare]
    (result,) = job.machine.state.drills
    stage = drills.NOTHING_CAME if running else drills.NOT_READY
    assert (result.verdict, result.detail) == (DrillVerdict.BROKEN, stage(seconds=900.0))


def test_a_migration_calls_a_drill_off() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2))
    spare = asked(job)
    moving(job)
    (result,) = job.machine.state.drills
    assert result.detail == drills.DRILL_CALLED_OFF(why="rank 1 migrates") and job.machine.state.workers[spare].state is WorkerState.LOST


def test_room_that_a_drill_took_is_free_after_it() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    spare = asked(job)
    (fresh,) = job.machine.state.idle(WorkerState.STARTING)
    assert not of(commands.StartWorker, job.submit(events.StartRefused(fresh.name, "n0", "no memory")))
    job.submit(events.Prepared(spare, 1))
    (start,) = of(commands.StartWorker, job.submit(events.Drilled(spare, 1, 1, DrillVerdict.SAME, 1, "")))
    assert start.spare and start.node == "n0"


def test_a_drill_that_ends_with_the_job_starts_nothing() -> None:
    job = Job(JobSpec("job", 1, 1, spares=1))
    spare = asked(job, 0)
    (fresh,) = job.machine.state.idle(WorkerState.STARTING)
    job.submit(events.StartRefused(fresh.name, "n0", "no memory"))
    job.submit(events.StopAsked("enough", 0))
    assert not of(commands.StartWorker, job.lose(spare))


def test_a_spare_that_is_prepared_already_does_not_set_up_again() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1, prepared=1))
    (spare,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM)]
    assert not of(commands.Prepare, job.submit(events.DrillAsked(0, "asked")))
    assert [drill.worker for drill in of(commands.Drill, job.submit(events.Prepared(spare, 0)))] == ["w0", spare]
    job.submit(events.Drilled(spare, 1, 0, DrillVerdict.SAME, 1, ""))
    job.warm()
    (spare,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM)]
    job.submit(events.Prepared(spare, 0))
    said = job.submit(events.DrillAsked(0, "asked"))
    assert [drill.worker for drill in of(commands.Drill, said)] == ["w0", spare] and not of(commands.Prepare, said)


def test_a_spare_that_is_prepared_for_a_rank_serves_only_a_drill_of_any_rank() -> None:
    job = Job(JobSpec("job", 2, 1, nodes=2, spares=1, prepared=1), spares={0: 1, 1: 0})
    (spare,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM)]
    job.submit(events.DrillAsked(0, "asked"))
    job.submit(events.Prepared(spare, 0))
    job.submit(events.Drilled(spare, 1, 0, DrillVerdict.SAME, 1, ""))
    job.submit(events.NodeTainted("n1", "loud"))
    job.warm()
    assert [worker.prepare.rank for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None] == [1]
    assert refusal(job.machine.state, 0) == moves.NO_SPARE()
    assert refusal(job.machine.state, -1) == refusal(job.machine.state, 1) == ""


def test_an_agent_that_comes_back_hears_of_a_drill_again() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    spare = asked(job)
    again = job.submit(events.NodeJoined("n0", "h0", 0))
    assert [one.worker for one in of(commands.Publish, again)] == ["w0", "w1"]
    assert [one.worker for one in of(commands.Prepare, again)] == [spare]
    job.submit(events.Prepared(spare, 1))
    again = job.submit(events.NodeJoined("n0", "h0", 0))
    assert [one.worker for one in of(commands.Drill, again)] == ["w1", spare] and not of(commands.Publish, again)


@pytest.mark.parametrize(("floor", "patience"), [(60.0, 10.0), (6.0, 3.0)])
def test_a_rank_waits_for_its_spare_for_a_while_that_no_hang_watch_takes_for_a_hang(floor: float, patience: float) -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.machine.state.timeouts = replace(job.machine.state.timeouts, hang_floor=floor)
    spare = asked(job)
    assert [drill.patience for drill in of(commands.Drill, job.submit(events.Prepared(spare, 1)))] == [patience] * 2


def test_the_rank_learns_that_no_spare_joins_its_step() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    spare = asked(job)
    assert not of(commands.DrillOver, job.lose(spare)), "the rank has not been notified of it"
    job.warm()
    spare = asked(job)
    job.submit(events.Prepared(spare, 1))
    assert of(commands.DrillOver, job.lose(spare)) == [commands.DrillOver("w1", 0, 2)]
    job.warm()
    spare = asked(job)
    job.submit(events.Prepared(spare, 1))
    assert not of(commands.DrillOver, job.lose("w1")), "it is called off by what the rank hears anyway"


def test_no_spare_is_started_in_place_of_one_whose_drill_is_called_off_while_a_rank_moves_or_when_the_job_ends() -> None:
    """Warming takes processor time from the newcomer, which sets up."""
    job = Job(JobSpec("job", 2, 2, spares=2))
    asked(job)
    (fresh,) = job.machine.state.idle(WorkerState.STARTING)
    job.submit(events.StartRefused(fresh.name, "n0", "no memory"))
    said = job.submit(events.MigrationAsked(1, "asked"))
    assert job.machine.state.migration is not None and not of(commands.StartWorker, said)
    job = Job(JobSpec("job", 1, 1, spares=1))
    asked(job, 0)
    (fresh,) = job.machine.state.idle(WorkerState.STARTING)
    job.submit(events.StartRefused(fresh.name, "n0", "no memory"))
    said = job.submit(events.Finished("w0", 0, 1))
    assert of(commands.EndJob, said) and not of(commands.StartWorker, said)


def test_a_script_that_raises_in_another_spare_is_no_verdict_of_the_drill() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    (other,) = [worker for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None]
    spare = asked(job)
    said = job.submit(events.ScriptFailed(other.name, 0, 0, "OSError: the file is locked", "..."))
    assert [kill.worker for kill in of(commands.KillWorker, said)] == [other.name]
    drill = job.machine.state.drill
    assert drill is not None and drill.worker == spare and job.machine.state.drills == []

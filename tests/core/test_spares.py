"""Spares: those that set up ahead for a rank, and those for which a rank waits."""

from __future__ import annotations

import pytest
from tests.core.core_job import Job, assigned, of

from understudy.core import commands, events
from understudy.core.model import JobSpec
from understudy.core.preparation import IN_A_ROW
from understudy.core.transitions import WorkerState


def killed(said: list[commands.Command]) -> list[str]:
    return [command.worker for command in of(commands.KillWorker, said)]


# -- spares that are prepared -----------------------------------------------------------------------------------------


def prepared(ranks: tuple[int, ...], spares: int, size: int = 3) -> Job:
    job = Job(JobSpec("job", size, size, spares=spares, prepared=len(ranks)))
    for rank in ranks:
        holders = [w for w in job.machine.state.idle(WorkerState.WARM) if w.prepare is not None and w.prepare.rank == rank]
        job.submit(events.Prepared(holders[0].name, rank))
    return job


def test_a_spare_that_is_prepared_for_another_rank_lives_on_while_a_free_one_is_there() -> None:
    job = prepared((0,), spares=2)
    said = job.lose("w2")
    assert assigned(said).worker == "w4" and killed(said) == ["w2"]


def test_it_is_ended_only_if_no_other_spare_may_come() -> None:
    job = prepared((0,), spares=1)
    said = job.lose("w2")
    assert killed(said) == ["w2", "w3"], "its process is rank 0's and can take no other"
    (new,) = of(commands.StartWorker, said)
    assert assigned(job.warm()).worker == new.worker


def test_it_is_not_ended_while_a_fresh_one_warms() -> None:
    job = prepared((0,), spares=2)
    job.lose("w4")  # the one that is free; another starts
    said = job.lose("w2")
    assert killed(said) == ["w2"]
    assert assigned(job.warm()).rank == 2


def test_two_lost_ranks_end_as_many_as_are_missing() -> None:
    job = prepared((0, 1), spares=3, size=5)
    job.lose("w7")  # a spare that is free warms again
    said = job.lose("w3")
    assert killed(said) == ["w3"]
    said = job.lose("w4")
    assert killed(said) == ["w4", "w5"], "one starts already"


def raises(job: Job, worker: str, rank: int) -> list[commands.Command]:
    return job.submit(events.ScriptFailed(worker, rank, 0, "OSError: the file is locked", "..."))


def test_a_set_up_ahead_that_raises_when_its_rank_is_lost_is_one_more_loss() -> None:
    """The script may have raised because the rank was alive at the same time: it is tried once more before the job ends."""
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    spare = next(worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None)
    job.lose("w3" if spare == "w2" else "w2")
    assert assigned(job.lose("w0")).worker == spare, "no other spare is warm"
    said = raises(job, spare, 0)
    assert killed(said) == [spare] and of(commands.EndJob, said) == []


def test_one_that_has_heard_of_the_loss_and_raises_then_ends_the_job() -> None:
    """Then the rank was gone already: the script does not get through its set-up, and would not on the next spare."""
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    spare = next(worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None)
    job.lose("w3" if spare == "w2" else "w2")
    given = assigned(job.lose("w0"))
    job.submit(events.PhaseDone(spare, given.generation, "setup", job.now, 0.1))
    (end,) = of(commands.EndJob, raises(job, spare, 0))
    assert "the file is locked" in end.message


@pytest.mark.parametrize("worker", ["w1", "w9"])
def test_what_the_script_of_a_fenced_or_unknown_worker_raises_ends_nothing(worker: str) -> None:
    """It was considered hung, say, and the closed connections raise in it."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.lose("w1")
    assert raises(job, worker, 1) == []


def test_a_spare_that_has_set_up_for_a_migration_in_vain_was_not_used_up() -> None:
    """Where spares are not replaced, this one is: it took no rank, but its process is that rank's."""
    job = Job(JobSpec("job", 3, 3, spares=2, replenish=False))
    newcomer = assigned(job.submit(events.MigrationAsked(0, "drain"))).worker
    assert job.lose("w1") != []
    job.rest()
    job.verify()
    (new,) = of(commands.StartWorker, job.commit(1))
    assert new.spare, f"in place of {newcomer}; the other one has taken rank 1"


def preparing(job: Job) -> str:
    """The spare that is in a set-up."""
    (one,) = [worker.name for worker in job.machine.state.idle(WorkerState.WARM) if worker.prepare is not None and not worker.ready]
    return one


def test_only_those_in_a_set_up_are_ended_when_it_takes_too_long() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, prepared=1))
    spare = preparing(job)
    assert killed(job.submit(events.Expired("prepare"))) == [spare]


def test_one_that_comes_through_a_set_up_makes_up_for_all_that_did_not() -> None:
    """Only so many in a row are the script's fault."""
    job = Job(JobSpec("job", 16, 16, spares=1, prepared=1))
    for _ in range(2):
        for _ in range(IN_A_ROW - 1):
            raises(job, preparing(job), 0 if not (asked := job.machine.state.workers[preparing(job)].prepare) else asked.rank)
            job.warm()
        spare = job.machine.state.workers[preparing(job)]
        assert spare.prepare is not None
        job.submit(events.Prepared(spare.name, spare.prepare.rank))
        job.lose(spare.name)
        job.warm()
    assert preparing(job)


def test_no_spare_sets_up_ahead_while_a_rank_moves() -> None:
    """It would take processor time from the node whose newcomer sets up; it does so afterwards."""
    job = Job(JobSpec("job", 2, 2, spares=3, prepared=1))
    spare = preparing(job)
    job.submit(events.Prepared(spare, 0))
    job.submit(events.MigrationAsked(0, "drain"))
    assert job.machine.state.migration is not None
    said = job.lose(next(worker.name for worker in job.machine.state.idle(WorkerState.WARM)))
    assert of(commands.Prepare, said + job.warm()) == []


# -- ranks that wait for a spare --------------------------------------------------------------------------------------


@pytest.mark.parametrize("replenish", [True, False])
def test_a_spare_that_is_lost_while_a_rank_waits_for_it(replenish: bool) -> None:
    """Another one is started; without replenishing no spare will come, and the job ends at once."""
    job = Job(JobSpec("job", 3, 3, spares=1, replenish=replenish), forming=True)
    for number in range(3):
        job.submit(events.WorkerStarted(f"w{number}", "n0", 100))
        job.submit(events.WorkerWarm(f"w{number}", "n0:7000"))
    job.commit(0)
    job.lose("w1")
    job.rest()
    said = job.lose("w3")
    assert len(of(commands.StartWorker, said)) == replenish and len(of(commands.EndJob, said)) == (not replenish)
    if replenish:
        assert assigned(job.warm()).rank == 1


def test_a_spare_that_is_lost_is_not_replaced_where_spares_are_not() -> None:
    job = Job(JobSpec("job", 2, 2, spares=2, replenish=False))
    assert of(commands.StartWorker, job.lose("w2")) == []
    job.lose("w1")
    job.rest()
    job.verify()
    assert of(commands.StartWorker, job.commit(1)) == []


def test_a_prepared_spare_is_started_over_if_the_one_that_was_to_come_is_refused() -> None:
    job = prepared((0,), spares=2)
    (new,) = of(commands.StartWorker, job.lose("w4"))
    job.lose("w2")
    job.rest()
    said = job.submit(events.StartRefused(new.worker, "n0", "no memory"))
    assert killed(said) == ["w3"] and len(of(commands.StartWorker, said)) == 1 and of(commands.EndJob, said) == []
    assert assigned(job.warm()).rank == 2

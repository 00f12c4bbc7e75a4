"""A section that has failed on one rank: all ranks go back to its begin, none is lost, and the incident has no grade."""

from __future__ import annotations

from tests.core.core_job import Job, assigned, of

from understudy.core import commands, events
from understudy.core.model import JobSpec
from understudy.core.transitions import Phase
from understudy.messages import recoveries
from understudy.messages.base import code_of


def failed(job: Job, worker: str) -> list[commands.Command]:
    return job.submit(events.SectionFailed(worker, job.machine.state.generation, "section save: OSError: no space"))


def test_all_ranks_stop_and_go_on_where_they_were() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    said = failed(job, "w0")
    assert {abort.worker for abort in of(commands.Abort, said)} == {"w0", "w1"} and not of(commands.KillWorker, said)
    assert not failed(job, "w1"), "the other one has failed, too"
    recovers = of(commands.Recover, job.rest())
    assert [(one.worker, one.start, one.newcomers) for one in recovers] == [("w0", 1, ()), ("w1", 1, ())]
    reported = [code_of(tell.text) for tell in of(commands.Tell, job.commit(1))]
    (incident,) = job.machine.incidents()
    assert (incident.cause, incident.decision, incident.grade, incident.ranks) == ("section", "skip", None, ())
    assert reported == [recoveries.INCIDENT_OVER.code] and job.machine.state.phase is Phase.TRAINING


def test_a_rank_that_is_lost_meanwhile_makes_it_a_recovery_like_any_other() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    failed(job, "w0")
    job.lose("w1")
    job.rest()
    job.verify()
    job.commit(1)
    (incident,) = job.machine.incidents()
    assert (incident.cause, incident.decision) == ("killed", "redo")


def test_a_rank_on_its_way_to_a_boundary_is_heard() -> None:
    """The others wait for it in a collective of the section, and would never reach their vote."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.submit(events.MigrationAsked(1, "asked"))).worker
    migration, before = job.machine.state.migration, job.machine.state.generation
    assert migration is not None
    job.submit(events.NewcomerReady(newcomer, migration.generation))
    assert job.machine.state.phase is Phase.QUIESCING
    said = job.submit(events.SectionFailed("w0", before, "section save: OSError: no space"))
    assert {abort.worker for abort in of(commands.Abort, said)} >= {"w0", "w1"}

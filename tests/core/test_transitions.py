"""The tables of what may follow what, and what is refused because of them."""

from __future__ import annotations

import typing

import pytest
from tests.core.core_job import Job, assigned, of

from understudy.core import commands, events
from understudy.core.model import JobSpec, LossCause, Position, VotePhase
from understudy.core.transitions import DURING, JOB, SPEAKERS, WORKER, Phase, RefusalReason, WorkerState

DEAD: dict[type, tuple[object, ...]] = {
    events.PhaseDone: ("setup", 0.0, 1.0),
    events.Verified: (3,),
    events.VerifyFailed: ("differs",),
    events.Uncovered: ("nowhere",),
}
DEAD |= {events.Committed: (1, 2), events.Finished: (), events.NewcomerReady: (), events.CommunicationBroken: ("reset",)}
DEAD |= {events.Quiesced: (Position(1, VotePhase.RUNNING), (), 1), events.ReplicasDiffer: ((0,), (), "differs")}
DEAD |= {events.RedoDiffers: (1, 1, "differs"), events.SectionFailed: ("no space",)}


def test_the_tables_know_every_state_and_only_events_that_there_are() -> None:
    assert set(WORKER) == set(WorkerState) and set(JOB) == set(Phase)
    assert {*SPEAKERS, *DURING} <= set(typing.get_args(events.Event))


def test_lost_and_ended_are_the_end_and_can_be_reached_from_everywhere() -> None:
    assert not WORKER[WorkerState.LOST] and not JOB[Phase.ENDED]
    assert all(WorkerState.LOST in following for state, following in WORKER.items() if state is not WorkerState.LOST)
    assert all(Phase.ENDED in following for phase, following in JOB.items() if phase is not Phase.ENDED)


@pytest.mark.parametrize("kind", DEAD, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("worker, why", [("w1", RefusalReason.STATE), ("w9", RefusalReason.UNKNOWN)])
def test_an_event_of_a_fenced_or_unknown_worker_is_counted_and_changes_nothing(kind: typing.Any, worker: str, why: RefusalReason) -> None:
    job = Job(JobSpec("job", 3, 3, spares=1))
    job.lose("w1")
    job.rest()
    job.verify()
    ranks, phase = dict(job.machine.state.ranks), job.machine.state.phase
    assert job.submit(kind(worker, job.machine.state.generation, *DEAD[kind])) == []
    assert (job.machine.state.ranks, job.machine.state.phase) == (ranks, phase)
    assert job.machine.state.refused == {(kind.__name__, why): 1}


def test_an_event_that_means_something_is_not_counted() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.lose("w1")
    job.rest()
    job.verify()
    job.commit(1)
    assert job.machine.state.phase is Phase.TRAINING and job.machine.state.refused == {}


def test_after_the_end_only_a_taint_is_heard() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    job.submit(events.StopAsked("enough", 0))
    assert job.submit(events.WorkerLost("w1", LossCause.KILLED, "signal 15", job.now)) == []
    job.submit(events.NodeTainted("n0", "loud"))
    assert job.machine.state.nodes["n0"].taint == "loud"
    assert job.machine.state.refused == {("WorkerLost", RefusalReason.PHASE): 1}


def test_a_step_that_no_table_knows_is_not_taken_and_is_counted() -> None:
    """Nothing leads there; if a bug ever does, it does not bring a fenced worker back, nor a job that has ended."""
    job = Job(JobSpec("job", 2, 2, spares=1))
    state = job.machine.state
    job.lose("w1")
    state.set_worker_state(state.workers["w1"], WorkerState.MEMBER)
    job.submit(events.StopAsked("enough", 0))
    state.set_phase(Phase.TRAINING)
    assert state.workers["w1"].state is WorkerState.LOST and state.phase is Phase.ENDED
    assert state.refused == {
        ("worker lost -> training", RefusalReason.TRANSITION): 1,
        ("job ended -> training", RefusalReason.TRANSITION): 1,
    }


def test_an_event_that_is_refused_is_accepted_later_when_it_is_due() -> None:
    job = Job(JobSpec("job", 2, 2, spares=1))
    newcomer = assigned(job.lose("w1")).worker
    early = events.Verified(newcomer, 1, 3)
    assert job.submit(early) == [] and job.machine.state.refused == {("Verified", RefusalReason.GENERATION): 1}
    job.rest()
    assert [timer.timer for timer in of(commands.SetTimer, job.submit(early))] == ["resume"]
    assert job.machine.state.workers[newcomer].state is WorkerState.MEMBER

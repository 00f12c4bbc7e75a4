"""What may follow what, and that what may not is counted."""

from __future__ import annotations

import typing

import pytest
from tests.unit.core_job import Job

from understudy.core import events
from understudy.core.nouns import JobSpec, LossCause
from understudy.core.transitions import PHASE, SAYS, WORKER, Phase, WorkerState

SPEC = JobSpec("job", 2, 2, spares=1)


def test_every_state_and_every_phase_is_in_its_table() -> None:
    assert set(WORKER) == set(WorkerState)
    assert set(PHASE) == set(Phase)


def test_who_is_lost_stays_lost_and_what_has_ended_has_ended() -> None:
    assert not WORKER[WorkerState.LOST]
    assert all(WorkerState.LOST in WORKER[state] for state in set(WorkerState) - {WorkerState.LOST}), "a process may end at any time"
    assert not PHASE[Phase.ENDED]
    assert all(Phase.ENDED in after for phase, after in PHASE.items() if phase is not Phase.ENDED)


def test_a_rank_is_given_to_who_is_warm_only() -> None:
    into = {state for state, after in WORKER.items() if WorkerState.NEWCOMER in after}
    assert into == {WorkerState.WARM}
    assert {state for state, after in WORKER.items() if WorkerState.MEMBER in after} == {
        WorkerState.WARM,
        WorkerState.NEWCOMER,
        WorkerState.LEAVING,
    }


def test_every_event_of_a_worker_is_in_the_table() -> None:
    of_workers = {kind for kind in typing.get_args(events.Event) if "worker" in kind.__annotations__}
    assert of_workers - SAYS.keys() == {events.WorkerStarted, events.Notice}, "the first makes it known, the second is for people"


def test_what_is_not_in_the_table_changes_nothing_and_is_counted() -> None:
    job = Job(SPEC)
    before = repr(job.machine.state.workers)
    for _ in range(2):
        assert job.submit(events.Verified("w0", 0, 3, ())) == []
    assert job.submit(events.Committed("w9", 0, 1, 2)) == []
    assert job.submit(events.Committed("w0", 7, 1, 2)) == []
    refused = job.machine.state.refused
    assert refused["Verified: of a worker that is training"] == 2
    assert refused["Committed: of an unknown worker"] == 1
    assert refused["Committed: in a generation that is over"] == 1
    assert repr(job.machine.state.workers).replace("heard=7", "heard=0") == before.replace("heard=7", "heard=0")


def test_a_transition_that_is_not_in_the_table_does_not_happen() -> None:
    job = Job(SPEC)
    state = job.machine.state
    job.lose("w0")
    lost = state.workers["w0"]
    state.become(lost, WorkerState.MEMBER)
    assert lost.state is WorkerState.LOST
    assert state.refused["worker lost: cannot become training"] == 1
    state.enter(Phase.FORMING)
    state.enter(Phase.TRAINING)
    state.enter(Phase.RESUMING)
    assert state.phase is Phase.TRAINING
    assert state.refused["job training: cannot become resuming"] == 1


@pytest.mark.parametrize("event", [events.WorkerLost("w0", LossCause.KILLED, "", 1.0), events.StopAsked("again", 3)])
def test_what_comes_behind_the_end_is_counted(event: events.Event) -> None:
    job = Job(SPEC)
    job.submit(events.StopAsked("enough", 0))
    assert job.submit(event) == []
    assert job.machine.state.refused == {f"{type(event).__name__}: the job has ended": 1}

"""A redone step is compared with the results that survivors had reached in their vote: whole jobs in one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.message_texts import has
from tests.worker.job_in_one_process import Job, Loss
from tests.worker.scripts_in_one_process import ITERATIONS, computes, undisturbed
from tests.worker.worker_in_one_process import Rank, replace_what_needs_processes, until

from understudy.core import events
from understudy.core.model import Grade, Incident, VotePhase
from understudy.messages import disputes, drills, grades, losses, recoveries
from understudy.worker import hooks

LOST_IN = 2  # iteration
LOST = Loss(1, "others have voted")


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


def job_with_a_loss(folder: Path, *, hidden: bool) -> Job:
    """Rank 1 is lost while all others wait in the vote. `hidden`: the gradient depends on a count that no rank hands over."""
    counts, ranks = Counter[int](), dict[int, Rank]()

    def script(rank: Rank, iteration: int) -> None:
        ranks[rank.number] = rank

        def step() -> None:
            gradient = computes(rank)
            counts[rank.number] += 1
            rank.net.weight.grad = gradient * counts[rank.number] if hidden else gradient
            if iteration == LOST_IN and rank.number == LOST.rank:
                until(lambda: all(ranks[other].runtime.progress.phase is VotePhase.VOTED for other in (0, 2)))
                hooks.fire(LOST.point)
            rank.step_optimizer()
            rank.optimizer.zero_grad()

        rank.transaction(step)

    return Job(folder, 3, script, ITERATIONS, 1, (LOST,))


def only_incident(job: Job) -> Incident:
    assert job.struck == [LOST]
    (incident,) = job.machine.incidents()
    return incident


def test_survivors_that_were_in_their_vote_prove_the_redo(tmp_path: Path) -> None:
    job = job_with_a_loss(tmp_path, hidden=False).run()
    assert job.ended is not None and job.ended[0] == 0, job.reported
    incident = only_incident(job)
    assert (incident.decision, incident.proven_by) == ("redo", (0, 2)), incident
    assert any(has(note, drills.REDO_PROVEN, who="ranks 0, 2: they") for note in incident.notes), incident
    assert job.states == undisturbed(tmp_path, "optimizer", 3).states


def test_a_redo_that_depends_on_a_hidden_count_is_disputed_until_it_is_believed(tmp_path: Path) -> None:
    job = job_with_a_loss(tmp_path, hidden=True)
    job.answers[disputes.REDO_HELD.code] = events.Believed(0, "it only scales the loss")
    job.run()
    assert job.ended is not None and job.ended[0] == 0, job.reported
    incident = only_incident(job)
    assert (incident.decision, incident.proven_by) == ("roll forward", ()), incident
    assert any(has(note, disputes.BELIEVED_FOR, rank=0, reason="it only scales the loss") for note in incident.notes), incident


def test_a_disputed_job_can_be_stopped(tmp_path: Path) -> None:
    job = job_with_a_loss(tmp_path, hidden=True)
    job.answers[disputes.REDO_HELD.code] = events.StopAsked("it is wrong", 1)
    job.run()
    assert job.ended is not None and job.ended[0] == 1
    assert losses.STOPPED.code in job.ended[1], job.ended
    assert any(has(note, disputes.REDO_HELD) for note in only_incident(job).notes)


def test_if_no_rank_had_reached_a_collective_nothing_is_compared_and_the_incident_is_unproven(tmp_path: Path) -> None:
    """The same hidden count. Without a comparison it is not noticed."""
    counts = Counter[int]()

    def script(rank: Rank, iteration: int) -> None:
        def step() -> None:
            counts[rank.number] += 1
            if iteration == LOST_IN and rank.number == LOST.rank:
                hooks.fire(LOST.point)
            rank.net.weight.grad = computes(rank) * counts[rank.number]
            rank.step_optimizer()

        rank.transaction(step)

    job = Job(tmp_path, 3, script, ITERATIONS, 1, (LOST,)).run()
    assert job.ended is not None and job.ended[0] == 0, job.reported
    incident = only_incident(job)
    assert (incident.decision, incident.proven_by, incident.grade) == ("redo", (), Grade.UNPROVEN), incident
    assert has("\n".join(job.reported), recoveries.INCIDENT_OVER) and has("\n".join(job.reported), grades.WARNING)

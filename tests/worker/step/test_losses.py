"""Ranks are lost at every point of a step, of a recovery and of its end, and the job reaches the same bits as without. Whole jobs in one
process (`job_in_one_process`), hence in less than a second each.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.message_texts import has, refused
from tests.worker.job_in_one_process import Cut, Job, Loss
from tests.worker.scripts_in_one_process import AFTER_THE_VOTE, ITERATIONS, SCRIPTS, computes, run, undisturbed
from tests.worker.worker_in_one_process import Rank, replace_what_needs_processes

from understudy.messages import coverage, newcomers
from understudy.worker.encoding.codec import decode
from understudy.worker.encoding.messages import BuddyCopy, name_of_place
from understudy.worker.errors import StateMismatch, UnderstudyError
from understudy.worker.generation.donors import Donors, read_copy
from understudy.worker.generation.members import Members
from understudy.worker.generation.plan import Plan
from understudy.worker.generation.step_copy import StepCopy
from understudy.worker.participant import Step
from understudy.worker.recovery.arrival import Arrival
from understudy.worker.step.boundary import StepBoundary
from understudy.worker.transport.rendezvous import Rendezvous

IN_STEPS = ("begin", "reduced", "vote", "vote copies", "vote agreement", "vote passed", "optimizer", "stepped", "committed", "after")
MAY_ROLL_FORWARD = ("vote copies", "vote agreement", "vote passed", "optimizer", "stepped")  # survivors may go on from this vote
IN_VOTES = ("vote", "vote copies", "vote agreement")
IN_RECOVERIES = ("quiesce", "donate", "attach", "taken", "prove", "verified", "attached")


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


@pytest.mark.parametrize("point", IN_STEPS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_loss_at_each_point_of_a_step(name: str, point: str, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, name, 3).states
    job = run(tmp_path, name, 3, Loss(1, point, 3))
    assert job.struck == [Loss(1, point, 3)] and job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected


@pytest.mark.parametrize("point", IN_STEPS)
def test_a_loss_loses_at_most_one_change_after_the_vote_and_reports_it(point: str, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, AFTER_THE_VOTE, 3).states
    job = run(tmp_path, AFTER_THE_VOTE, 3, Loss(1, point, ITERATIONS))
    assert job.ended is not None and job.ended[0] == 0, job.reported
    (incident,) = job.machine.incidents()
    lost = any(has(note, newcomers.CHANGE_LOST, point="after with_a_change_after_the_vote.<locals>.step") for note in incident.notes)
    assert not any(has(note, newcomers.CHANGE_RUN_AGAIN) for note in incident.notes), incident.notes
    buffer = "net/buffer/mean"
    if lost:
        assert point in MAY_ROLL_FORWARD
        short = np.frombuffer(job.states[1].pop(buffer)) + 1.0  # what rank 1 adds after each vote
        assert np.array_equal(short, np.frombuffer(expected[1][buffer]))
        expected = {**expected, 1: {name: data for name, data in expected[1].items() if name != buffer}}
    assert job.states == expected, incident.notes


def test_a_newcomer_of_a_section_is_given_what_the_lost_rank_returned_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[BuddyCopy]()

    def read(members: Members, rank: int, meeting: Rendezvous) -> BuddyCopy:
        found.append(read_copy(members, rank, meeting))
        return found[-1]

    monkeypatch.setattr("understudy.worker.recovery.arrival.read_copy", read)
    in_the_section = Loss(1, "reduced", 4)
    job = run(tmp_path, "section", 3, in_the_section)
    assert job.struck == [in_the_section] and job.ended is not None and job.ended[0] == 0, job.reported
    (copy,) = found
    assert decode(copy.results[name_of_place(copy.place)]) == 101


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("point", IN_RECOVERIES)
def test_a_second_loss_at_each_point_of_a_recovery(point: str, rank: int, tmp_path: Path) -> None:
    """Of a donor, or of the newcomer itself."""
    expected = undisturbed(tmp_path, "optimizer", 3).states
    first, second = Loss(1, "vote", 3), Loss(rank, point)
    job = run(tmp_path, "optimizer", 3, first, second)
    donor_only, newcomer_only = point in ("quiesce", "donate"), point in ("taken", "prove", "verified", "attached")
    happens = not (donor_only and rank == 1) and not (newcomer_only and rank == 0)
    assert job.struck == ([first, second] if happens else [first])
    assert job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected


def test_two_newcomers_of_one_recovery_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reports it when the recovery after that, of which it is a newcomer, too, is decided already."""
    expected = undisturbed(tmp_path, "optimizer", 3).states
    (script, each), verify, wrong, lock = SCRIPTS["optimizer"], Arrival._verify, list[int](), threading.Lock()
    both = threading.Event()  # have come to this point of one generation

    def verify_wrongly(self: Arrival, plan: Plan, copy: BuddyCopy, donors: Donors) -> None:
        recovery, control = donors.members.recovery, self._membership.control
        with lock:
            if len(recovery.newcomers) < 2 or len(wrong) == 2:
                return verify(self, plan, copy, donors)
            wrong.append(self._progress.rank)
            second = len(wrong) == 2
        if second:
            both.set()
            control.wait_for(lambda: control.recovery is not None and control.recovery.generation > recovery.generation)
        assert both.wait(60.0)
        raise StateMismatch("wrong on purpose")

    monkeypatch.setattr(Arrival, "_verify", verify_wrongly)
    job = Job(tmp_path, 3, script, ITERATIONS, each, (Loss(0, "vote", 3), Loss(1, "quiesce")), spares=4).run()
    assert sorted(wrong) == [0, 1]
    assert job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("point", IN_VOTES)
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "optimizer" else pytest.mark.whole) for name in SCRIPTS])
def test_a_loss_right_after_a_connection_broke(name: str, point: str, lost: int, tmp_path: Path) -> None:
    """Nobody was lost when it broke. If the ranks then go on from a vote in which they had not read each other's copies, they have to
    hand them over before the next transaction begins.
    """
    expected = undisturbed(tmp_path, name, 2).states
    cut, loss = Cut(0, point, 3), Loss(lost, "begin", 4)
    job = run(tmp_path, name, 2, cut, loss)
    assert job.struck == [cut, loss]
    assert job.ended is not None and job.ended[0] == 0, job.ended
    assert job.states == expected


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("point", IN_VOTES)
def test_a_value_that_begins_to_differ_as_a_connection_breaks(point: str, lost: int, tmp_path: Path) -> None:
    """The copies of that vote do not have it, and the agreement that would have shown this did not come about."""
    begins = 4  # the iteration; by then all ranks know that this value was the same on all of them

    def script(rank: Rank, iteration: int) -> None:
        def step() -> None:
            rank.net.weight.grad = computes(rank)
            rank.count.value += 10 * rank.number * (iteration == begins)
            rank.step_optimizer()

        rank.transaction(step)

    expected = Job(tmp_path, 2, script, begins + 3).run().states
    job = Job(tmp_path, 2, script, begins + 3, 1, (Cut(0, point, begins + 1), Loss(lost, "begin", begins + 2))).run()
    assert job.ended is not None and job.ended[0] == 0, job.ended
    assert job.states == expected


def test_copies_that_are_not_handed_over_again_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepBoundary, "_hand_over_again", lambda self: setattr(self._membership, "unshared", False))
    job = run(tmp_path, "optimizer", 2, Cut(0, "vote", 3), Loss(1, "begin", 4))
    assert job.ended is not None and job.ended[0] != 0


@pytest.mark.parametrize("lost", [0, 1])
def test_replicas_that_part_after_a_recovery_end_the_job(lost: int, tmp_path: Path) -> None:
    """The learning rate follows a counter that a newcomer begins again. It is a value that all ranks had in common, so that the vote shows
    that it differs before parameters are compared: they must not count as different from then on without a word.
    """
    counts: dict[Rank, int] = {}

    def script(rank: Rank, iteration: int) -> None:
        def step() -> None:
            rank.optimizer.param_groups[0]["lr"] = 0.1 / (1 + counts[rank])
            rank.net.weight.grad = computes(rank)
            rank.step_optimizer()

        counts[rank] = counts.get(rank, -1) + 1
        rank.transaction(step)

    loss = Loss(lost, "begin", 6)
    job = Job(tmp_path, 2, script, 10, 1, (loss,))
    with refused(UnderstudyError, coverage.NO_LONGER_SAME):
        job.run()
    assert job.struck == [loss]


LOSSES = some.builds(Loss, some.integers(0, 3), some.sampled_from((*IN_STEPS, *IN_RECOVERIES)), some.integers(1, 8))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.sampled_from(sorted(SCRIPTS)), some.integers(2, 4), some.lists(LOSSES, min_size=1, max_size=3, unique=True))
def test_losses_anywhere(tmp_path: Path, name: str, size: int, losses: list[Loss]) -> None:
    """The same bits; or, if several were lost so soon after each other that state is nowhere, the job reports it and ends."""
    expected = undisturbed(tmp_path, name, size).states
    job = run(tmp_path, name, size, *losses)
    assert job.ended is not None
    if job.ended[0] == 0:
        assert job.states == expected
    else:
        assert len(job.struck) > 1, job.ended


def test_a_redo_that_starts_from_something_else_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = undisturbed(tmp_path, "optimizer", 3).states
    monkeypatch.setattr(StepCopy, "rollback", lambda self, step: None)
    job = run(tmp_path, "optimizer", 3, Loss(1, "reduced", 3))
    assert job.states != expected


def test_a_newcomer_that_is_given_another_moment_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of the begin is left out, and with it what a redo draws again."""
    expected = undisturbed(tmp_path, "optimizer", 2).states
    stock = StepCopy.begin

    def begin(self: StepCopy, step: Step) -> None:
        stock(self, step)
        self.snapshot.streams = {}

    monkeypatch.setattr(StepCopy, "begin", begin)
    job = run(tmp_path, "optimizer", 2, Loss(1, "reduced", 3))
    assert job.states != expected

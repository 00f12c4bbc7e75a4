"""Ranks are lost at every point of a step, of a recovery and of its end, and the job comes to the same bits as without.

Whole jobs in one process (`job_in_one_process`), hence in hundredths of a second each.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.worker.job_in_one_process import DTYPE, Job, Loss, Rank, Script, replace_what_needs_processes

from understudy.worker import points
from understudy.worker.generation.step_copy import StepCopy
from understudy.worker.participant import Step

ITERATIONS = 5
IN_STEPS = ("begin", "reduced", "vote", "vote copies", "vote agreement", "vote passed", "optimizer", "stepped", "committed", "after")
IN_RECOVERIES = ("quiesce", "donate", "attach", "taken", "prove", "verified", "attached")


def computes(rank: Rank) -> torch.Tensor:
    """Forward and backward: what is drawn is this rank's own, the gradient is that of all."""
    drawn = torch.rand(2, 3, generator=rank.dice, dtype=DTYPE)
    rank.net.mean.mul_(0.9).add_(drawn.mean(0))
    rank.count.value += 1
    gradient = rank.groups.sum(drawn + rank.net.weight.detach() * (rank.number + 1))
    points.reach("reduced")
    rank.net.bias.grad = rank.groups.sum(gradient.sum(1))
    return gradient


def with_an_optimizer(rank: Rank, iteration: int) -> None:
    def step() -> None:
        rank.net.weight.grad = computes(rank)
        rank.step_optimizer()
        rank.optimizer.zero_grad()

    rank.transaction(step)
    points.reach("after")


def accumulated(rank: Rank, iteration: int) -> None:
    """Two transactions: the second adds to the gradient of the first."""

    def first() -> None:
        rank.optimizer.zero_grad()
        rank.net.weight.grad = computes(rank)

    def second() -> None:
        gradient = computes(rank)
        assert rank.net.weight.grad is not None
        rank.net.weight.grad = rank.net.weight.grad + gradient
        rank.step_optimizer()

    for part in (first, second)[rank.transactions % 2 :]:
        rank.transaction(part)
    points.reach("after")


def with_a_section(rank: Rank, iteration: int) -> None:
    """A step, and an evaluation that draws."""

    def step() -> None:
        rank.net.weight.grad = computes(rank)
        rank.step_optimizer()

    def evaluate() -> float:
        points.reach("reduced")
        return float(rank.groups.sum(rank.net(torch.rand(1, 3, generator=rank.dice, dtype=DTYPE)).detach()).sum())

    if rank.transactions % 2 == 0:
        rank.transaction(step)
    rank.transaction(evaluate, "section")
    points.reach("after")


SCRIPTS: dict[str, tuple[Script, int]] = {  # with the transactions of an iteration
    "optimizer": (with_an_optimizer, 1),
    "accumulated": (accumulated, 2),
    "section": (with_a_section, 2),
}
_undisturbed: dict[tuple[str, int], Job] = {}


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


def run(folder: Path, name: str, size: int, *losses: Loss) -> Job:
    script, each = SCRIPTS[name]
    return Job(folder, size, script, ITERATIONS, each, losses).run()


def undisturbed(folder: Path, name: str, size: int) -> Job:
    if (name, size) not in _undisturbed:
        _undisturbed[name, size] = run(folder, name, size)
    found = _undisturbed[name, size]
    assert found.ended is not None and found.ended[0] == 0 and found.states.keys() == set(range(size))
    return found


@pytest.mark.parametrize("point", IN_STEPS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_loss_at_each_point_of_a_step(name: str, point: str, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, name, 3).states
    job = run(tmp_path, name, 3, Loss(1, point, 3))
    assert job.struck == [Loss(1, point, 3)] and job.ended is not None and job.ended[0] == 0, job.told
    assert job.states == expected


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("point", IN_RECOVERIES)
def test_a_second_loss_at_each_point_of_a_recovery(point: str, rank: int, tmp_path: Path) -> None:
    """Of a donor, or of the newcomer itself."""
    expected = undisturbed(tmp_path, "optimizer", 3).states
    first, second = Loss(1, "vote copies", 3), Loss(rank, point)
    job = run(tmp_path, "optimizer", 3, first, second)
    donor_only, newcomer_only = point in ("quiesce", "donate"), point in ("taken", "prove", "verified", "attached")
    happens = not (donor_only and rank == 1) and not (newcomer_only and rank == 0)
    assert job.struck == ([first, second] if happens else [first])
    assert job.ended is not None and job.ended[0] == 0, job.told
    assert job.states == expected


LOSSES = some.builds(Loss, some.integers(0, 3), some.sampled_from((*IN_STEPS, *IN_RECOVERIES)), some.integers(1, 8))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.sampled_from(sorted(SCRIPTS)), some.integers(2, 4), some.lists(LOSSES, min_size=1, max_size=3, unique=True))
def test_losses_anywhere(tmp_path: Path, name: str, size: int, losses: list[Loss]) -> None:
    """The same bits; or, if several were lost so soon after each other that state is nowhere, the job says so and ends."""
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

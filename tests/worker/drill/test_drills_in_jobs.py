"""Drills of whole jobs in one process: a spare computes the same step as a rank. However that ends, the job's result has the same
bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.worker.job_in_one_process import Ask, Job, Loss
from tests.worker.scripts_in_one_process import ITERATIONS, SCRIPTS, computes, undisturbed
from tests.worker.worker_in_one_process import DTYPE, SPARE_OF, Rank, Script, replace_what_needs_processes, stand_still, until

from understudy.core import drill, events
from understudy.core.model import DrillResult, DrillVerdict
from understudy.worker import hooks
from understudy.worker.drill import drill as ranks_side
from understudy.worker.errors import GenerationAborted

RANKS = 3
ASKED_IN = 1  # iteration
DRILLED = 1


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


def drilled(folder: Path, name: str, *losses: Loss, script: Script | None = None) -> Job:
    """A job whose rank 1 is drilled once. Its training waits until the drill begins, and before its last iteration until it is over."""
    stock, each = SCRIPTS[name]
    asked = Ask(0, "begin", events.DrillAsked(DRILLED, "asked"), ASKED_IN * each + 1)

    def with_a_wait(at: Rank, iteration: int) -> None:
        if iteration == ASKED_IN + 1:
            until(lambda: job.over.is_set() or bool(job.machine.state.drills) or at.number != DRILLED or is_told(at))
        elif iteration == ITERATIONS - 1:
            until(lambda: job.over.is_set() or bool(job.machine.state.drills))
        (script or stock)(at, iteration)

    job = Job(folder, RANKS, with_a_wait, ITERATIONS, each, (asked, *losses), spares=1 + len(losses), replenish=True)
    return job.run()


def is_told(at: Rank) -> bool:
    """To begin."""
    return at.runtime.membership.control.drill is not None


def result(job: Job) -> DrillResult:
    """Of its only drill. The job has ended well."""
    assert job.ended is not None and job.ended[0] == 0, job.reported
    (found,) = job.machine.state.drills
    return found


def is_spare(at: Rank) -> bool:
    return at.runtime.membership.control.assignment is None


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_spare_computes_the_same_bits(name: str, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, name, RANKS).states
    job = drilled(tmp_path, name)
    found = result(job)
    assert found.verdict is DrillVerdict.SAME, job.reported
    assert found.collectives and found.compared > found.collectives
    assert job.states == expected and not job.machine.incidents()


def in_the_gradient(at: Rank, attempt: int) -> None:
    gradient = at.net.weight.grad
    assert gradient is not None
    gradient[0, 0] = torch.nextafter(gradient[0, 0], torch.tensor(9, dtype=DTYPE))


def in_the_redo(at: Rank, attempt: int) -> None:
    if attempt > 1:
        in_the_gradient(at, attempt)


def in_a_collective(at: Rank, attempt: int) -> None:
    at.groups.sum(torch.ones(1, dtype=DTYPE) * (1 + is_spare(at)))


def in_one_more_collective(at: Rank, attempt: int) -> None:
    at.groups.sum(torch.ones(1, dtype=DTYPE))


def in_a_value(at: Rank, attempt: int) -> None:
    at.count.value += 1


def in_a_buffer(at: Rank, attempt: int) -> None:
    at.net.mean.add_(1)


def in_what_is_drawn(at: Rank, attempt: int) -> None:
    torch.rand(1, generator=at.dice)


def in_an_error(at: Rank, attempt: int) -> None:
    raise ValueError("only here")


EITHER = (in_a_value, in_a_buffer, in_what_is_drawn, in_an_error)
BEFORE = (in_the_gradient, in_the_redo, in_a_collective, in_one_more_collective, *EITHER)


@pytest.mark.parametrize(
    ("how", "stepped"),
    [*((how, False) for how in BEFORE), *((how, True) for how in EITHER)],
    ids=lambda given: given.__name__ if callable(given) else "after the vote" if given else "before the vote",
)
def test_a_spare_that_does_something_else_is_found_out(how: Callable[[Rank, int], None], stepped: bool, tmp_path: Path) -> None:
    """And the rank is as it would be without it."""
    both = how is in_a_collective  # whose argument differs
    attempts: list[int] = []

    def otherwise(at: Rank, iteration: int) -> None:
        def step() -> None:
            if is_spare(at):
                attempts.append(1)
            at.net.weight.grad = computes(at)
            if not stepped and (both or is_spare(at)):
                how(at, len(attempts))
            at.step_optimizer()
            if stepped and is_spare(at):
                how(at, len(attempts))
            at.optimizer.zero_grad()

        at.transaction(step)

    job = drilled(tmp_path, "optimizer", script=otherwise)
    found = result(job)
    assert found.verdict is DrillVerdict.DIFFERENT, (found, job.reported)
    assert not job.machine.incidents()
    if not both:
        assert job.states == undisturbed(tmp_path, "optimizer", RANKS).states


def test_an_attempt_that_is_broken_off_is_redone_whatever_a_library_makes_of_that(tmp_path: Path) -> None:
    """As torch's pipelines do: what is raised in a stage becomes an error of theirs."""
    wrapped: list[str] = []

    def in_stages(at: Rank, iteration: int) -> None:
        def step() -> None:
            try:
                at.net.weight.grad = computes(at)
            except GenerationAborted as error:
                wrapped.append(str(error))
                raise RuntimeError("Failed to run stage backward") from error
            at.step_optimizer()
            at.optimizer.zero_grad()

        at.transaction(step)

    job = drilled(tmp_path, "optimizer", script=in_stages)
    assert result(job).verdict is DrillVerdict.SAME, job.reported
    assert wrapped == ["this attempt of a drill ends in the middle of its step"]
    assert job.states == undisturbed(tmp_path, "optimizer", RANKS).states


OF_THE_SPARE = ("prepared", "rehearsal begin", "rehearsal state", "prove", "rehearsal first", "rehearsal redo")


@pytest.mark.parametrize("point", OF_THE_SPARE)
def test_a_spare_is_lost_in_its_drill(point: str, tmp_path: Path) -> None:
    """Nothing is known then, and the rank has gone on."""
    job = drilled(tmp_path, "optimizer", Loss(SPARE_OF + DRILLED, point))
    assert job.struck[1:] == [Loss(SPARE_OF + DRILLED, point)]
    assert result(job).verdict is DrillVerdict.BROKEN, job.reported
    assert job.states == undisturbed(tmp_path, "optimizer", RANKS).states and not job.machine.incidents()


IN_A_STEP = ("begin", "reduced", "vote", "vote copies", "vote agreement", "vote passed", "stepped", "committed")


@pytest.mark.parametrize(
    "loss",
    [
        *(Loss(DRILLED, point) for point in ("drill begin", "drill vote", "drill end")),
        *(Loss(rank, point, ASKED_IN + 2) for point in IN_A_STEP for rank in (0, DRILLED)),
    ],
    ids=lambda loss: f"{loss.point}-{loss.rank}",
)
def test_a_rank_is_lost_in_a_drill(loss: Loss, tmp_path: Path) -> None:
    """The one that is drilled, or another: the drill ends, and the rank is replaced."""
    job = drilled(tmp_path, "optimizer", loss)
    assert job.struck[1:] == [loss]
    result(job)
    (incident,) = job.machine.incidents()
    assert [one.rank for one in incident.ranks] == [loss.rank] and incident.steps_lost == 0
    assert job.states == undisturbed(tmp_path, "optimizer", RANKS).states


def test_a_rank_does_not_wait_for_a_spare_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drill, "PATIENCE", 0.3)
    monkeypatch.setattr(hooks, "_listeners", defaultdict(list))
    hooks.on("rehearsal begin", stand_still)
    job = drilled(tmp_path, "optimizer")
    assert result(job).verdict is DrillVerdict.BROKEN, job.reported
    assert job.states == undisturbed(tmp_path, "optimizer", RANKS).states


def test_results_that_are_too_large_to_be_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The step is compared up to there."""
    monkeypatch.setattr(ranks_side, "BYTES", 50)
    found = result(drilled(tmp_path, "optimizer"))
    assert (found.verdict, found.collectives) == (DrillVerdict.PARTLY, 1) and found.left_out


losses = some.builds(
    Loss,
    some.sampled_from([*range(RANKS), SPARE_OF + DRILLED]),
    some.sampled_from(
        [*OF_THE_SPARE, *IN_A_STEP, "drill begin", "drill vote", "drill end", "attach", "donate", "prove", "verified", "attached"]
    ),
    some.integers(1, 4),
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.sampled_from(sorted(SCRIPTS)), some.lists(losses, min_size=1, max_size=2, unique_by=lambda loss: loss.rank))
def test_losses_anywhere_during_a_drill(tmp_path: Path, name: str, lost: list[Loss]) -> None:
    expected = undisturbed(tmp_path, name, RANKS).states
    job = drilled(tmp_path, name, *lost)
    assert result(job).verdict in (DrillVerdict.SAME, DrillVerdict.BROKEN), job.reported
    assert job.states == expected

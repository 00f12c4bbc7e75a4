"""A section that fails on one rank and is skipped on all, with a loss at any point of it: whole jobs in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.worker.job_in_one_process import Job, Loss
from tests.worker.scripts_in_one_process import ITERATIONS, computes
from tests.worker.worker_in_one_process import DTYPE, Rank, replace_what_needs_processes

from understudy.worker import hooks

FAILING = 1  # rank
FAILS_IN = 2  # iteration
VOTES = 2 * FAILS_IN + 1  # before that of the attempt that skips the section
POINTS = ("begin", "vote", "vote copies", "vote agreement", "vote passed", "committed", "quiesce", "donate", "attach", "taken", "attached")

Fails = Callable[[Rank], bool]


def always(rank: Rank) -> bool:
    return True


def on_the_first_worker(rank: Rank) -> bool:
    return rank.runtime.newcomer is None


def never(rank: Rank) -> bool:
    return False


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


def run(folder: Path, fails: Fails, *happens: Loss, empty: bool = False) -> Job:
    """`empty`: the section that would fail does nothing."""

    def script(rank: Rank, iteration: int) -> None:
        def step() -> None:
            rank.net.weight.grad = computes(rank)
            rank.step_optimizer()

        def evaluate() -> float:
            if empty and iteration == FAILS_IN:
                return 0.0
            rank.count.value += 1
            rank.net.mean.add_(1.0)
            drawn = torch.rand(1, 3, generator=rank.dice, dtype=DTYPE)
            if rank.number == FAILING and iteration == FAILS_IN and fails(rank):
                hooks.fire("fails")
                raise OSError(28, "No space left on device")
            return float(rank.groups.sum(drawn).sum())

        if rank.transactions % 2 == 0:
            rank.transaction(step)
        rank.transaction(evaluate, "section", reports=True)

    return Job(folder, 3, script, ITERATIONS, 2, happens).run()


def test_it_is_skipped_as_if_it_did_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = run(tmp_path, never, empty=True).states
    job = run(tmp_path, always)
    assert job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected
    (incident,) = job.machine.incidents()
    assert (incident.cause, incident.decision) == ("section", "skip")
    assert capfd.readouterr().err.count("OSError: [Errno 28] No space left on device") == 1


@pytest.mark.parametrize("rank", [0, FAILING])
@pytest.mark.parametrize("point", POINTS)
def test_a_loss_at_each_point(tmp_path: Path, point: str, rank: int) -> None:
    """Of the attempt that skips it, or of the recovery. The newcomer fails, too."""
    expected = run(tmp_path, never, empty=True).states
    time = 1 if point in ("quiesce", "donate", "attach", "taken", "attached") else VOTES + 1
    job = run(tmp_path, always, Loss(rank, point, time + 1 if point == "begin" else time))
    assert job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected


@pytest.mark.parametrize(("point", "time"), [("fails", 1), ("vote", VOTES + 1)])
def test_the_failing_rank_is_lost_and_its_newcomer_does_not_fail(tmp_path: Path, point: str, time: int) -> None:
    """What the others have skipped meanwhile is no measure for the section that is run after all."""
    expected = run(tmp_path, never).states
    job = run(tmp_path, on_the_first_worker, Loss(FAILING, point, time))
    assert job.struck and job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected
    assert all(not incident.disputed for incident in job.machine.incidents())

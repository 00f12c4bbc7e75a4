"""The block of `job.attempts()`, with real losses in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.message_texts import refused
from tests.worker.job_in_one_process import Job, Loss
from tests.worker.scripts_in_one_process import computes
from tests.worker.worker_in_one_process import Rank, replace_what_needs_processes

from understudy.messages import script
from understudy.worker import hooks
from understudy.worker.api.attempts import Attempts
from understudy.worker.errors import UsageError

ITERATIONS = 4


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


def iteration(rank: Rank, number: int) -> None:
    scale = 1.0
    for attempt in Attempts(rank.runtime, "step"):
        with attempt:
            scale = scale * 0.5  # twice in a redo, if the name did not get its value back
            rank.net.weight.grad = computes(rank) * scale
            rank.step_optimizer()
            rank.optimizer.zero_grad()
    assert scale == 0.5
    hooks.fire("after")


@pytest.mark.parametrize("point", ["begin", "reduced", "vote", "vote passed", "after"])
def test_a_loss_in_a_block(point: str, tmp_path: Path) -> None:
    expected = Job(tmp_path / "undisturbed", 3, iteration, ITERATIONS, 1, ()).run()
    job = Job(tmp_path / "disturbed", 3, iteration, ITERATIONS, 1, (Loss(1, point, 3),)).run()
    assert job.struck and job.ended is not None and job.ended[0] == 0, job.reported
    assert job.states == expected.states


def test_attempts_that_are_not_entered_are_refused(tmp_path: Path) -> None:
    def wrong(rank: Rank, number: int) -> None:
        attempts = Attempts(rank.runtime, "step")
        next(attempts)
        with refused(UsageError, script.ATTEMPT_NOT_ENTERED):
            next(attempts)
        iteration(rank, number)

    job = Job(tmp_path, 2, wrong, 1, 1, ()).run()
    assert job.ended is not None and job.ended[0] == 0, job.reported

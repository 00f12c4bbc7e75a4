"""A transaction whose owner calls what belongs to it: what it refuses, and what it reports. Losses in it are in test_losses.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.message_texts import has, refused
from tests.worker.job_in_one_process import Job
from tests.worker.worker_in_one_process import Rank, replace_what_needs_processes

from understudy.messages import transactions as texts
from understudy.worker.errors import UsageError
from understudy.worker.step.open_transaction import OpenTransaction


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_what_needs_processes(monkeypatch)


def gradients_of(rank: Rank) -> Callable[[], None]:
    def train() -> None:
        for parameter in rank.net.parameters():
            parameter.grad = torch.ones_like(parameter)

    return train


def ran(folder: Path, script: Callable[[Rank, OpenTransaction], None]) -> Job:
    """A job of two ranks and one iteration, in which `script` is what follows the begin."""

    def iteration(rank: Rank, number: int) -> None:
        opened = rank.runtime.transactions.open("step", "opened")
        script(rank, opened)
        rank.runtime.transactions.close(opened, "result")

    job = Job(folder, 2, iteration, 1, 1, ()).run()
    assert job.ended is not None and job.ended[0] == 0, job.reported
    return job


def test_a_call_that_gets_a_graph_is_refused(tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        loss = rank.net(torch.ones(1, 3, dtype=torch.float64)).sum()
        with refused(UsageError, texts.OF_ANOTHER_CALL, name="Tensor.backward"):
            opened.call(loss.backward)
        opened.call(gradients_of(rank))

    ran(tmp_path, script)


def test_a_call_that_gets_a_gradient_is_refused(tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        opened.call(gradients_of(rank))
        with refused(UsageError, texts.OF_ANOTHER_CALL):
            opened.call(rank.net.bias.grad.mul_, 2.0)

    ran(tmp_path, script)


def test_a_call_that_gets_an_iterator_is_refused(tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        opened.call(gradients_of(rank))
        with refused(UsageError, texts.ITERATOR_IN_CALL, name="clip_grad_norm_"):
            opened.call(torch.nn.utils.clip_grad_norm_, rank.net.parameters(), 1.0)
        opened.call(torch.nn.utils.clip_grad_norm_, list(rank.net.parameters()), 1.0)

    ran(tmp_path, script)


@pytest.mark.parametrize("which", ["weight", "gradient"])
def test_a_parameter_or_gradient_that_the_owner_changes_itself_is_refused(which: str, tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        opened.call(gradients_of(rank))
        with torch.no_grad():
            (rank.net.weight if which == "weight" else rank.net.weight.grad).mul_(2.0)
        with refused(UsageError, texts.CHANGED_BETWEEN_CALLS, running="step opened"):
            opened.vote()
        opened._left = type(opened._left).of(rank.runtime.state)  # so that the job can end

    ran(tmp_path, script)


def test_a_call_after_the_vote_is_refused(tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        opened.call(gradients_of(rank))
        rank.step_optimizer()
        with refused(UsageError, texts.CALL_AFTER_VOTE, running="step opened"):
            opened.call(gradients_of(rank))

    ran(tmp_path, script)


def test_a_value_that_calls_and_the_owner_change_is_reported_at_first_sight(tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        def count() -> None:
            rank.count.value += 1

        opened.call(count)
        rank.count.value += 10
        opened.call(gradients_of(rank))

    job = ran(tmp_path, script)
    assert any(has(text, texts.CHANGED_BY_BOTH, entry="count/value") for text in job.reported)


def test_what_a_call_raises_reaches_its_owner_and_the_calls_before_count(tmp_path: Path) -> None:
    def script(rank: Rank, opened: OpenTransaction) -> None:
        opened.call(gradients_of(rank))
        with pytest.raises(ZeroDivisionError):
            opened.call(lambda: 1 / 0)

    ran(tmp_path, script)

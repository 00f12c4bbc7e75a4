"""Training scripts for jobs in one process, and their undisturbed runs."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.worker.job_in_one_process import Happens, Job
from tests.worker.worker_in_one_process import DTYPE, Rank, Script

from understudy.worker import hooks
from understudy.worker.verification.post_vote_changes import TOP, Look

ITERATIONS = 5


def computes(rank: Rank) -> torch.Tensor:
    """Forward and backward: what is drawn is this rank's own, the gradient is that of all."""
    drawn = torch.rand(2, 3, generator=rank.dice, dtype=DTYPE)
    rank.net.mean.mul_(0.9).add_(drawn.mean(0))
    rank.count.value += 1
    gradient = rank.groups.sum(drawn + rank.net.weight.detach() * (rank.number + 1))
    hooks.fire("reduced")
    rank.net.bias.grad = rank.groups.sum(gradient.sum(1))
    return gradient


def with_an_optimizer(rank: Rank, iteration: int) -> None:
    def step() -> None:
        rank.net.weight.grad = computes(rank)
        rank.step_optimizer()
        rank.optimizer.zero_grad()

    rank.transaction(step)
    hooks.fire("after")


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
    hooks.fire("after")


def with_a_section(rank: Rank, iteration: int) -> None:
    """A step, and an evaluation that draws."""

    def step() -> int:
        rank.net.weight.grad = computes(rank)
        rank.step_optimizer()
        return 100 + rank.number

    def evaluate() -> float:
        hooks.fire("reduced")
        return float(rank.groups.sum(rank.net(torch.rand(1, 3, generator=rank.dice, dtype=DTYPE)).detach()).sum())

    if rank.transactions % 2 == 0:
        rank.transaction(step)
    rank.transaction(evaluate, "section")
    hooks.fire("after")


def opened_by_its_owner(rank: Rank, iteration: int) -> None:
    """The owner of the transaction draws and counts between two recorded calls, in what these change, too."""
    transactions = rank.runtime.transactions
    opened = transactions.open("step", "opened")

    def train(noise: float) -> None:
        rank.net.mean.mul_(noise)
        rank.net.weight.grad = computes(rank)

    opened.call(rank.optimizer.zero_grad)
    rank.count.value += 10
    noise = float(torch.rand(1, generator=rank.dice, dtype=DTYPE))
    rank.net.mean.add_(noise)
    opened.call(train, noise)
    rank.count.value *= 2
    opened.call(lambda: rank.net.bias.grad.mul_(0.5))
    rank.step_optimizer()
    transactions.close(opened, None)
    hooks.fire("after")


def with_a_change_after_the_vote(rank: Rank, iteration: int) -> None:
    """A buffer that differs from rank to rank changes in the transaction, after the vote. A loss between the two loses that change, which
    is reported."""

    def step() -> None:
        rank.net.weight.grad = computes(rank)
        rank.step_optimizer()
        rank.net.mean.add_(rank.number)

    rank.transaction(step)
    rank.runtime.verification.post_vote.look(TOP, Look.AT_STREAMS)  # as a loop of the job does
    hooks.fire("after")


SCRIPTS: dict[str, tuple[Script, int]] = {  # with the transactions of an iteration
    "optimizer": (with_an_optimizer, 1),
    "accumulated": (accumulated, 2),
    "section": (with_a_section, 2),
    "opened": (opened_by_its_owner, 1),
}
AFTER_THE_VOTE = "after the vote"
_undisturbed: dict[tuple[str, int], Job] = {}


def run(folder: Path, name: str, size: int, *happens: Happens) -> Job:
    script, each = SCRIPTS.get(name, (with_a_change_after_the_vote, 1))
    return Job(folder, size, script, ITERATIONS, each, happens).run()


def undisturbed(folder: Path, name: str, size: int) -> Job:
    if (name, size) not in _undisturbed:
        _undisturbed[name, size] = run(folder, name, size)
    found = _undisturbed[name, size]
    assert found.ended is not None and found.ended[0] == 0 and found.states.keys() == set(range(size))
    return found

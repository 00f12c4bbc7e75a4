"""The closure of `optimizer.step(closure)` runs before the vote, once, and the optimizer gets its result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from understudy.worker.step.transactions import with_closure_run


def stepped(kind: type[torch.optim.Optimizer], *, ahead: bool, by_name: bool) -> tuple[list[str], torch.Tensor, Any]:
    """Step once. Return what happened, the weight after it, and the result."""
    happened: list[str] = []
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = kind([weight], lr=0.1)  # type: ignore[call-arg]

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        others = with_closure_run(optimizer, args, kwargs) if ahead else None
        happened.append("vote")
        return others

    def closure() -> Any:
        happened.append("closure")
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.register_step_pre_hook(before)
    with torch.no_grad():  # as a library may
        result = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    return happened, weight.detach(), result


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_it_runs_before_the_vote_and_once(kind: type[torch.optim.Optimizer], by_name: bool) -> None:
    happened, weight, result = stepped(kind, ahead=True, by_name=by_name)
    _, expected, loss = stepped(kind, ahead=False, by_name=by_name)
    assert happened == ["closure", "vote"]
    assert torch.equal(weight, expected) and torch.equal(result, loss)


class _Perturbs(torch.optim.SGD):
    """As SAM does: it needs gradients at other parameters than those with which the step began."""

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["params"][0].data.add_(1.0)
        with torch.enable_grad():
            return closure()


def test_one_that_runs_after_a_change_is_left_to_the_optimizer() -> None:
    happened, _, loss = stepped(_Perturbs, ahead=True, by_name=False)
    assert happened == ["vote", "closure"] and loss.item() == 5.0  # 2 and -1, squared


def test_one_that_runs_several_times_is_left_to_the_optimizer() -> None:
    happened, *_ = stepped(torch.optim.LBFGS, ahead=True, by_name=False)
    assert happened[0] == "vote" and happened.count("closure") > 1


def test_a_step_without_one_keeps_its_arguments() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    assert with_closure_run(optimizer, (optimizer,), {}) is None
    assert with_closure_run(optimizer, (optimizer, None), {}) is None

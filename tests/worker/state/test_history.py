"""Whether a backward could go through a tensor: asked of what is at hand, and compared with a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from understudy.worker.state import history
from understudy.worker.state.history import has_history


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, given: Tensor) -> Tensor:
        context.save_for_backward(given)
        return given * 2

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (given,) = context.saved_tensors
        gradient = gradient * 2 + 0 * given
        return gradient


def twice(given: Tensor) -> Tensor:
    apply: Any = Twice.apply  # typed in some versions of torch only
    made: Tensor = apply(given)
    return made


def attention(given: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(given, given, given)


inner = nn.Linear(3, 3)
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda given: given * given,
    "view": lambda given: (given * given).view(3, 1),
    "linear": inner,
    "linear without bias": lambda given: functional.linear(given, inner.weight),
    "custom": twice,
    "checkpoint": lambda given: checkpoint(inner, given, use_reentrant=False),
    "lstm": lambda given: nn.LSTM(3, 4)(given.view(1, 1, 3))[1][0],
    "gru": lambda given: nn.GRUCell(3, 4)(given.view(1, 3)),
    "attention": lambda given: attention(given.view(1, 1, 1, 3)),
    "norm": lambda given: functional.layer_norm(given, (3,)),
    "convolution": lambda given: nn.Conv1d(1, 1, 1)(given.view(1, 1, 3)),
    "with a part that is detached": lambda given: (given * given).detach() * given,
    "sum with what is spent": lambda given: spent(given) + given,
}


def spent(given: Tensor) -> Tensor:
    made = given * given
    torch.autograd.backward(made.sum())
    return made


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_spent_where_a_second_backward_raises(name: str) -> None:
    made = OPERATIONS[name](torch.randn(3, requires_grad=True))
    if name != "sum with what is spent":
        assert has_history(made)
        torch.autograd.backward(made.sum(), retain_graph=True)
        assert has_history(made)
        torch.autograd.backward(made.sum())
    assert not has_history(made)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.backward(made.sum())


def test_it_asks_for_nothing_to_be_computed() -> None:
    """What a checkpoint computes again in a backward, or a hook fetches back from elsewhere, stays where it is."""
    calls: list[str] = []

    def block(given: Tensor) -> Tensor:
        calls.append("computed")
        return torch.tanh(given)

    def fetch(kept: Tensor) -> Tensor:
        calls.append("fetched")
        return kept

    given = torch.randn(3, requires_grad=True)
    made = checkpoint(block, given, use_reentrant=False)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, fetch):
        other = given * given
    calls.clear()
    assert has_history(made) and has_history(other) and calls == []


def test_what_has_no_graph_or_saves_nothing() -> None:
    parameter = torch.zeros(3, requires_grad=True)
    assert not has_history(parameter) and not has_history(torch.zeros(3)) and not has_history((parameter * 2).detach())
    total = parameter + 1
    torch.autograd.backward(total.sum())
    assert has_history(total)  # a second backward works


def test_a_look_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "NODES", 5)
    made = spent(torch.zeros(3, requires_grad=True))
    for _ in range(3):
        made = made + 1
    assert not has_history(made)
    for _ in range(3):
        made = made + 1
    assert has_history(made)

"""Gradients that a step finds and leaves alone, as one does that only evaluates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from understudy.worker.doctor.base import world
from understudy.worker.errors import Misuse
from understudy.worker.state.gradients import Gradients


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(model(torch.ones(2)).sum())


DONE: dict[str, tuple[Callable[[nn.Module, torch.optim.Optimizer], object], bool]] = {
    "nothing": (lambda model, optimizer: None, True),
    "an evaluation": (lambda model, optimizer: model(torch.zeros(2)), True),
    "a step that drops them": (train, False),
    "a step that adds to them": (lambda model, optimizer: torch.autograd.backward(model(torch.ones(2)).sum()), False),
    "a step that drops them and makes none": (lambda model, optimizer: optimizer.zero_grad(), False),
}


@pytest.fixture(params=[False, True], ids=["plain", "DTensors"])
def model(request: pytest.FixtureRequest) -> Iterator[nn.Module]:
    """A DTensor counts its changes beside the memory below."""
    made = nn.Linear(2, 1)
    if not request.param:
        yield made
        return
    with world():
        fully_shard(made, mesh=init_device_mesh("cpu", (1,)))
        yield made


def dropping(model: nn.Module) -> tuple[torch.optim.Optimizer, Gradients]:
    """Behind some steps, all of which have dropped what they found."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = Gradients({"optimizer": optimizer})
    for _ in range(3):
        step(gradients, lambda: train(model, optimizer))
    assert not gradients.matter
    return optimizer, gradients


def step(gradients: Gradients, body: Callable[[], object], optimizes: bool = True) -> bool:
    """What the vote says of it: whether all ranks have what there is, and a later step may go on with it."""
    gradients.begin()
    body()
    carried = gradients.shared() and not optimizes
    gradients.learn(carried)
    return carried


@pytest.mark.parametrize("what", DONE)
def test_whether_an_attempt_has_left_those_of_the_step_before(what: str, model: nn.Module) -> None:
    done, untouched = DONE[what]
    optimizer, gradients = dropping(model)
    gradients.begin()
    done(model, optimizer)
    assert gradients.untouched() is untouched
    gradients.matter = True
    assert not gradients.untouched()
    gradients.matter = False
    optimizer.zero_grad()
    gradients.begin()
    assert not gradients.untouched()  # there are none


def test_gradients_that_a_newcomer_has_not_got_are_nobodys_until_a_step_drops_them(model: nn.Module) -> None:
    """A step that only evaluates, right behind a recovery: all ranks have to take the same for the state."""
    optimizer, gradients = dropping(model)
    gradients.joined(newcomer=False)
    for _ in range(2):
        assert not step(gradients, lambda: model(torch.zeros(2)), optimizes=False)
        assert (gradients.matter, gradients.kept) == (False, 0)
    step(gradients, lambda: train(model, optimizer))
    assert not gradients.matter
    assert step(gradients, lambda: model(torch.zeros(2)), optimizes=False)
    assert (gradients.matter, gradients.kept) == (True, 1)


def test_the_newcomer_takes_the_same_for_the_state(model: nn.Module) -> None:
    optimizer, gradients = dropping(model)
    optimizer.zero_grad()
    gradients.joined(newcomer=True)
    assert not step(gradients, lambda: model(torch.zeros(2)), optimizes=False)
    assert (gradients.matter, gradients.kept) == (False, 0)
    step(gradients, lambda: train(model, optimizer))
    assert step(gradients, lambda: model(torch.zeros(2)), optimizes=False)
    assert (gradients.matter, gradients.kept) == (True, 1)


def test_who_adds_to_gradients_that_a_newcomer_has_not_got_is_refused(model: nn.Module) -> None:
    _, gradients = dropping(model)
    gradients.joined(newcomer=False)
    gradients.begin()
    torch.autograd.backward(model(torch.ones(2)).sum())
    with pytest.raises(Misuse, match="a newcomer that has joined since does not have them"):
        gradients.shared()


def test_those_that_belong_to_the_state_came_with_the_newcomer(model: nn.Module) -> None:
    _, gradients = dropping(model)
    gradients.matter = True
    gradients.joined(newcomer=False)
    assert step(gradients, lambda: torch.autograd.backward(model(torch.ones(2)).sum()), optimizes=False)
    assert gradients.matter

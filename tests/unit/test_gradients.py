"""Gradients that a step finds and leaves alone, as one does that only evaluates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from understudy.worker.doctor.base import world
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
        gradients.begin()
        train(model, optimizer)
        gradients.learn(carried=False)
    assert not gradients.matter
    return optimizer, gradients


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

"""Parameters that change before a vote: found however they are written, restored, and known to all ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.message_texts import has, refused
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from understudy.messages import registered
from understudy.worker.doctor.base import world
from understudy.worker.errors import UsageError
from understudy.worker.state.pre_vote_changes import PreVoteChanges
from understudy.worker.state.registry import State

Write = Callable[[nn.Linear], None]


def in_place(layer: nn.Linear) -> None:
    with torch.no_grad():
        layer.weight.add_(1)


def through_data(layer: nn.Linear) -> None:
    layer.weight.data.add_(1)


def through_numpy(layer: nn.Linear) -> None:
    layer.weight.detach().numpy()[:] += 1


def other_memory(layer: nn.Linear) -> None:
    layer.weight.data = layer.weight.data + 1


def one_bit(layer: nn.Linear) -> None:
    layer.weight.detach().numpy().view("u4")[0, 0] ^= 1


WRITES: list[Write] = [in_place, through_data, through_numpy, other_memory, one_bit]


def trained() -> tuple[nn.Linear, torch.optim.Optimizer, PreVoteChanges]:
    layer = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = State()
    state.register("net", layer)
    state.register("optimizer", optimizer)
    return layer, optimizer, PreVoteChanges(state)


@pytest.mark.parametrize("write", WRITES)
def test_a_write_in_the_first_transaction_is_found_and_put_back(write: Write) -> None:
    layer, _, early = trained()
    weight, address, before = layer.weight, layer.weight.data_ptr(), layer.weight.detach().clone()
    begun = early.begin("step")
    write(layer)
    early.restore(begun)
    assert layer.weight is weight and weight.data_ptr() == address and torch.equal(weight, before)
    write(layer)
    assert has(early.look(begun), registered.CHANGED_BEFORE_VOTE, function="step", entry="net/parameter/weight", more="")
    assert early.entries == {"net/parameter/weight"} and early.found_now
    assert early.look(begun) == ""  # reported once


@pytest.mark.parametrize("write", WRITES)
def test_known_changes_are_restored_in_every_later_transaction(write: Write) -> None:
    layer, optimizer, early = trained()
    for number in range(6):
        before = layer.weight.detach().clone()
        begun = early.begin("step")
        write(layer)
        if number > 0:
            early.restore(begun)
            assert torch.equal(layer.weight, before), number
            write(layer)
        early.look(begun)
        optimizer.step()  # after the vote


def test_moments_count_too() -> None:
    layer, optimizer, early = trained()
    begun = early.begin("step")
    moment = optimizer.state[layer.weight]["exp_avg"]
    before = moment.clone()
    moment.data.zero_()
    early.restore(begun)
    assert torch.equal(moment, before)
    moment.data.zero_()
    assert has(early.look(begun), registered.CHANGED_BEFORE_VOTE, entry="optimizer/state/0/exp_avg")


def test_memory_that_is_exchanged_and_exchanged_back_leaves_no_trace_and_is_put_back_all_the_same() -> None:
    """Averaged weights that are put in for an evaluation by `.data`: at the vote they are out again."""
    layer, _, early = trained()
    average = nn.Linear(3, 3)
    for number in range(4):
        begun = early.begin("evaluate")
        home = layer.weight.data_ptr()
        layer.weight.data, average.weight.data = average.weight.data, layer.weight.data
        if number == 3:  # interrupted
            early.restore(begun)
            assert layer.weight.data_ptr() == home
            return
        layer.weight.data, average.weight.data = average.weight.data, layer.weight.data
        assert early.look(begun) == ""


def test_a_first_write_in_a_later_transaction_is_named_and_not_guessed() -> None:
    layer, _, early = trained()
    for _ in range(3):
        assert early.look(early.begin("step")) == ""
    begun = early.begin("step")  # number 3: no power of two
    in_place(layer)
    with refused(UsageError, registered.NO_COPY_TO_REDO, function="step", entry="net/parameter/weight"):
        early.restore(begun)
    assert has(early.look(begun), registered.CHANGED_BEFORE_VOTE_LATE, function="step", entry="net/parameter/weight")
    begun = early.begin("step")
    before = layer.weight.detach().clone()
    in_place(layer)
    early.restore(begun)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("write", [lambda weight: weight.mul_(2), lambda weight: weight.to_local().mul_(2)], ids=["it", "its memory"])
def test_a_dtensor_counts_its_changes_apart_from_its_memory(write: Callable[[torch.Tensor], object]) -> None:
    with world():
        layer = nn.Linear(3, 3)
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        state = State()
        state.register("net", layer)
        early = PreVoteChanges(state)
        for _ in range(3):
            assert early.look(early.begin("step")) == ""
        begun = early.begin("step")  # number 3: no power of two
        with torch.no_grad():
            write(layer.weight)
        assert has(early.look(begun), registered.CHANGED_BEFORE_VOTE_LATE, function="step", entry="net/parameter/weight")


def test_functions_are_distinguished() -> None:
    layer, _, early = trained()
    begun = early.begin("evaluate")
    in_place(layer)
    early.look(begun)
    for _ in range(4):
        step = early.begin("step")
        assert early.look(step) == ""
    assert not step.kept  # nothing is copied for it
    assert early.begin("evaluate").kept.keys() >= {"net/parameter/weight"}

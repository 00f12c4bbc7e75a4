"""The state of DDP is read and set in one process; descriptions of ranks are compared; hooks that keep state are recognized."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.message_texts import has, refused
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from understudy.messages import frameworks
from understudy.worker.encoding.codec import decode, encode
from understudy.worker.frameworks import ddp
from understudy.worker.frameworks.base import Described, SharedObject, brief, disagreement
from understudy.worker.frameworks.comm_hooks import Hook, keeps
from understudy.worker.frameworks.ddp import Steering
from understudy.worker.frameworks.fsdp2 import Switches
from understudy.worker.frameworks.pipelines import PipelineSetUp, Stage


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _model(**options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)]), bucket_cap_mb=0.0003, **options)


def _train(model: DistributedDataParallel) -> None:
    model(torch.randn(2, 8)).sum().backward()


def test_a_rebuild_in_the_middle_of_an_attempt_is_taken_back(world: None) -> None:
    model = _model()
    begun = ddp.read(model)
    assert not begun.rebuilt
    _train(model)
    _train(model)  # its forward rebuilds
    rebuilt = ddp.read(model)
    assert rebuilt.rebuilt and rebuilt.layout != begun.layout
    ddp.put(model, begun)
    assert ddp.read(model) == begun
    _train(model)
    assert ddp.read(model) == begun
    _train(model)
    assert ddp.read(model) == rebuilt


def test_a_pending_rebuild_happens_when_it_is_asked_for(world: None) -> None:
    model = _model()
    ddp.settle(model)
    assert not ddp.settled(model)
    _train(model)
    ddp.settle(model)
    assert ddp.settled(model)


@pytest.mark.parametrize("static_graph", [False, True])
def test_any_layout_can_be_given_and_stays(world: None, static_graph: bool) -> None:
    model = _model(static_graph=static_graph)
    wanted = Steering([[0, 5], [3, 2, 1], [4]], True, False, True)
    ddp.put(model, wanted, from_scratch=True)
    assert ddp.read(model) == wanted
    model.require_backward_grad_sync = True
    _train(model)
    _train(model)
    assert ddp.read(model).layout == wanted.layout
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("buffers", [False, True])
def test_an_evaluation_of_one_rank_matters_where_buffers_are_broadcast(world: None, buffers: bool) -> None:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), *[nn.BatchNorm1d(8)] * buffers))
    with torch.no_grad():
        model(torch.randn(2, 8))
    steering = ddp.read(model)
    assert steering.forward_sync is not buffers
    _train(model)
    ddp.put(model, steering)
    assert ddp.read(model).forward_sync is not buffers


def test_a_backward_that_failed_half_way_leaves_nothing(world: None) -> None:
    model = _model()
    begun = ddp.read(model)

    def fail(_: torch.Tensor) -> None:
        raise ValueError("in the middle")

    first = next(model.module[1].parameters())
    handle = first.register_hook(fail)
    with pytest.raises(ValueError, match="in the middle"):
        _train(model)
    handle.remove()
    ddp.put(model, begun)
    _train(model)
    assert ddp.read(model) == begun


def test_frozen_later_and_never_rebuilt(world: None) -> None:
    model = _model(find_unused_parameters=True)
    next(model.parameters()).requires_grad_(False)
    assert sorted(number for bucket in ddp.layout_of(model) for number in bucket) == list(range(6))
    assert ddp.settled(model)


def test_hooks_that_keep_something() -> None:
    class Errors:
        pass

    errors = Errors()

    def with_errors(state: Any, bucket: Any) -> Any:
        return errors

    assert keeps(Hook(default_hooks.bf16_compress_hook), set()) == ""
    assert keeps(Hook(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)), set()) == ""
    assert keeps(Hook(dist.BuiltinCommHookType.FP16_COMPRESS), set()) == ""  # type: ignore[attr-defined]
    assert keeps(Hook(functools.partial(with_errors, errors)), set()).endswith(".Errors")
    assert keeps(Hook(functools.partial(with_errors, errors)), {id(errors)}) == ""
    assert keeps(Hook(powerSGD_hook.powerSGD_hook, errors), set()).endswith(".Errors")


def test_what_ranks_use_together_is_compared_in_both_directions() -> None:
    def reported(ranks: list[int], **facts: Any) -> SharedObject:
        return SharedObject(tuple(ranks), "DistributedDataParallel over Net", facts)

    one: Described = {"ddp/0/1": reported([0, 1], layout=[[0], [1]]), "ddp/1/1": reported([0], layout=[[7]])}
    assert disagreement({0: one, 1: {"ddp/0/1": reported([0, 1], layout=[[0], [1]])}, 2: {}}) == ""
    found = disagreement({0: one, 1: {"ddp/0/1": reported([0, 1], layout=[[0, 1]])}})
    assert has(found, frameworks.FACT_DIFFERS, fact="layout", one="[[0], [1]]", rank=0, two="[[0, 1]]", other=1)
    assert disagreement({0: one, 1: {}}) == frameworks.NOT_MADE_THERE(rank=0, title="DistributedDataParallel over Net", other=1)
    assert disagreement({0: {}, 1: one}) == frameworks.NOT_MADE_THERE(rank=1, title="DistributedDataParallel over Net", other=0)
    long = {"ddp/0/1": reported([0, 1], layout=[list(range(100))])}
    assert disagreement({0: brief(long), 1: brief(long)}) == ""
    other = {"ddp/0/1": reported([0, 1], layout=[list(reversed(range(100)))])}
    assert "layout" in disagreement({0: brief(long), 1: brief(other)})


def test_what_newcomers_adopt_arrives_as_it_was_sent_or_not_at_all() -> None:
    steering = Steering([[0, 5], [3]], True, False, True)
    switches = Switches(True, True, False, True, False, True, "whole")
    set_up = PipelineSetUp([True, False], [Stage([[[[2, 3], [3, 1], torch.float32, True]], [None], None, None], True)])
    refusals = {Steering: frameworks.NOT_A_LAYOUT, Switches: frameworks.NOT_SWITCHES, PipelineSetUp: frameworks.NOT_A_SET_UP}
    for sent in (steering, switches, set_up):
        packed = decode(encode(sent.packed()))
        assert type(sent).unpacked(packed) == sent
        for wrong in (None, packed[:-1], [*packed, True], [None, *packed[1:]]):
            with refused(ValueError, refusals[type(sent)], found=repr(wrong)):
                type(sent).unpacked(wrong)

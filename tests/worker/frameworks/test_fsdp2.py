"""What steers FSDP2's collectives is put back as it was, except what the first forward decides once for all."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from understudy.worker.doctor.base import world
from understudy.worker.frameworks import fsdp2
from understudy.worker.frameworks.base import Memberships, Registered


@pytest.fixture
def model() -> Iterator[FSDPModule]:
    """A sharded module with a sharded layer, both of which leave it to torch whether to reshard after the forward."""
    with world():
        mesh = init_device_mesh("cpu", (1,))
        layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
        fully_shard(layers[0], mesh=mesh)
        yield fully_shard(layers, mesh=mesh)


def _resharding(module: nn.Module) -> bool:
    (group,) = fsdp2.groups_of(module)
    return group.post_forward_mesh_info is not None


def test_what_the_first_forward_decided_outlives_a_redo_of_the_first_step(model: nn.Sequential) -> None:
    parts = [(module, *fsdp2.groups_of(module)) for module in (model, model[0])]
    begun = [fsdp2.switches_of(module, group) for module, group in parts]
    assert [_resharding(module) for module, _ in parts] == [True, True]
    model(torch.randn(2, 8)).sum().backward()
    fsdp2.reset(model)
    for (module, group), switches in zip(parts, begun, strict=True):
        fsdp2.set_switches(module, group, switches)
    assert [_resharding(module) for module, _ in parts] == [False, True]  # as on a newcomer, once it has had its first forward


@pytest.mark.parametrize("reshards", [False, True])
def test_the_script_s_choice_of_resharding_is_restored(model: nn.Sequential, reshards: bool) -> None:
    (group,) = fsdp2.groups_of(model)
    begun = fsdp2.switches_of(model, group)
    model(torch.randn(2, 8)).sum().backward()
    assert isinstance(model, FSDPModule)
    model.set_reshard_after_forward(reshards)
    said = fsdp2.switches_of(model, group)
    fsdp2.set_switches(model, group, begun)
    assert not _resharding(model)
    fsdp2.set_switches(model, group, said)
    assert _resharding(model) == reshards


@pytest.mark.parametrize("frozen", [False, True])
def test_what_an_evaluation_has_left_gathered_is_freed_and_what_no_backward_frees_is_left(model: nn.Sequential, frozen: bool) -> None:
    """A redo has to gather it, and so has a newcomer: otherwise both would issue more than the interrupted attempt."""
    model.requires_grad_(not frozen)
    adapter = fsdp2.Fsdp2(cast(Registered, SimpleNamespace(modules={"model": model})), cast(Memberships, None))
    adapter.begin()
    with torch.no_grad():
        model(torch.randn(2, 8))
    (root,), (layer,) = fsdp2.groups_of(model), fsdp2.groups_of(model[0])
    assert root.is_unsharded and not layer.is_unsharded
    assert adapter.redoes_otherwise() == frozen == bool(adapter.not_drilled())
    adapter.begin()
    assert root.is_unsharded == frozen
    if not frozen:
        model(torch.randn(2, 8)).sum().backward()
        assert not root.is_unsharded and all(parameter.grad is not None for parameter in model.parameters())

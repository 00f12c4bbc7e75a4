"""What steers FSDP2's collectives is put back as it was, except what the first forward decides once for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from understudy.worker.doctor.base import world
from understudy.worker.frameworks import fsdp2


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
def test_what_the_script_says_of_resharding_is_taken_back(model: nn.Sequential, reshards: bool) -> None:
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

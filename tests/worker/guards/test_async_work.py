"""Results of functional collectives that are not read yet are waited for once, when that is requested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._C._distributed_c10d import HashStore, _get_work_registry_size
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from understudy.worker.guards.async_work import Unread


@pytest.fixture
def unread() -> Iterator[Unread]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    unread = Unread()
    unread.install()
    yield unread
    unread.remove()
    dist.destroy_process_group()


def _reduce() -> AsyncCollectiveTensor:
    assert dist.group.WORLD is not None
    result = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
    assert isinstance(result, AsyncCollectiveTensor)
    return result


def test_an_unread_result_is_waited_for(unread: Unread) -> None:
    read = _reduce()
    assert read.sum().item() == 3
    view = _reduce().view(3)
    assert isinstance(view, AsyncCollectiveTensor)
    results = [read, view, _reduce()]
    assert [result.completed for result in results] == [True, False, False]
    assert _get_work_registry_size() == 2
    unread.settle()
    assert [result.completed for result in results] == [True, True, True]
    assert _get_work_registry_size() == 0
    assert [result.sum().item() for result in results] == [3, 3, 3]


def test_a_dropped_result_is_not_waited_for(unread: Unread) -> None:
    held = _reduce()
    unread.forget()
    unread.settle()
    assert not held.completed

"""A script that makes its own default process group is reported once; `understudy.join` makes ours, which is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d

from understudy.worker import patches
from understudy.worker.guards import own_group


@pytest.fixture
def reports() -> Iterator[list[str]]:
    before, found = patches.installed(), list[str]()
    own_group.watch(found.append)
    yield found
    own_group.expect()
    assert patches.installed() == before
    if dist.is_initialized():
        dist.destroy_process_group()


def test_the_place_of_the_first_call_is_reported(reports: list[str]) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    (place,) = reports
    assert Path(place.rpartition(":")[0]) == Path(__file__)


def test_a_call_by_the_name_in_torchs_own_module_is_reported(reports: list[str]) -> None:
    distributed_c10d.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert len(reports) == 1 and dist.is_initialized()


def test_the_group_of_the_job_is_expected(reports: list[str]) -> None:
    own_group.expect()
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert reports == []


def test_the_group_of_a_trainer_with_an_integration_is_made_by_the_job() -> None:
    before, found, asked = patches.installed(), list[str](), list[tuple[str, object]]()

    def take_over(frame: FrameType, backend: object) -> bool:
        asked.append((frame.f_code.co_name, backend))
        return True

    own_group.watch(found.append, take_over)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert (asked, found, dist.is_initialized()) == ([(sys._getframe().f_code.co_name, "gloo")], [], False)
    assert patches.installed() == before

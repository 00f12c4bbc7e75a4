"""The place of a script, as `job.newcomer` and `job.first_run` show it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from understudy.worker.api.job import Job
from understudy.worker.recovery.newcomer import Newcomer


def _job(newcomer: Any) -> Job:
    return Job(cast(Any, SimpleNamespace(newcomer=newcomer, progress=SimpleNamespace(rank=0, world_size=1))))


def test_without_an_agent_everything_runs_for_the_first_time() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        job = Job(None)
        assert (job.newcomer, job.first_run) == (False, True)
    finally:
        dist.destroy_process_group()


def test_on_a_first_worker_too() -> None:
    job = _job(None)
    assert (job.newcomer, job.first_run) == (False, True)


@pytest.mark.parametrize(("arrived", "drill", "first"), [(False, None, False), (True, None, True), (True, object(), False)])
def test_on_a_newcomer_from_its_arrival_on_and_never_in_a_drill(arrived: bool, drill: object, first: bool) -> None:
    newcomer = Newcomer.__new__(Newcomer)
    newcomer.arrived, newcomer._takeover = arrived, cast(Any, drill)
    job = _job(newcomer)
    assert (job.newcomer, job.first_run) == (True, first)

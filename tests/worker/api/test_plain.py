"""The same calls without an agent: as a plain Python process, each block and call runs once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch.distributed as dist
from tests.message_texts import refused
from torch._C._distributed_c10d import HashStore

from understudy.messages import script
from understudy.worker.api.job import Job
from understudy.worker.errors import UsageError


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_block_of_attempts_runs_once_and_counts() -> None:
    job, ran = Job(None), 0
    for attempt in job.attempts():
        with attempt:
            ran += 1
    for attempt in job.attempts("section"):
        with attempt:
            ran += 1
    assert ran == 2 and job.committed == 1


def test_an_error_in_the_block_of_attempts_is_raised() -> None:
    job = Job(None)
    with pytest.raises(ZeroDivisionError):
        for attempt in job.attempts():
            with attempt:
                raise ZeroDivisionError
    assert job.committed == 0


def test_a_transaction_that_its_owner_continues() -> None:
    job = Job(None)
    update = job.begin("step")
    assert not update.passed and update.call(max, 1, 2) == 2
    update.vote()
    update.commit("result")
    assert update.result == "result" and job.committed == 1


@pytest.mark.parametrize("method", ["attempts", "begin"])
def test_another_kind_is_refused(method: str) -> None:
    job = Job(None)
    with refused(UsageError, script.KIND_OF_TRANSACTION, method=method, given="both"):
        cast(Any, job.attempts)("both") if method == "attempts" else cast(Any, job.begin)("name", "both")


def test_a_loop_that_its_owner_leads() -> None:
    job, batches, positions = Job(None), iter("ab"), list[Any]()
    assert job.where() == (0, -1, 0, None)
    loop = job.lead(lambda: "somewhere", positions.append)
    assert loop.iteration == -1
    assert [loop.draw(next, batches), loop.iteration, loop.draw(next, batches), loop.iteration] == ["a", 0, "b", 1]
    with pytest.raises(StopIteration):
        loop.draw(next, batches)
    loop.end()
    assert positions == [] and job.where().loop == 1


def test_a_loop_that_its_owner_leaves_early() -> None:
    job = Job(None)
    loop = job.lead(lambda: None, lambda position: None)
    loop.draw(int)
    with refused(UsageError, script.NESTED_LOOPS):
        next(job.steps(1))
    loop.end()
    assert list(job.steps(2)) == [0, 1]

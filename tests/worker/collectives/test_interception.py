"""Clients of collectives are added and removed while other threads issue collectives, as `dcp.async_save` does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.integration.processes import LIMIT
from torch._C._distributed_c10d import HashStore

from understudy.worker.collectives.interception import Collective, Kernels, below, intercept

TURNS = 3000  # of a client that comes and goes


class Counting(Kernels):
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
        self.seen.append(collective.operator)
        return operate()


def clients_and_threads() -> None:
    """A program of its own, which a wrong dispatcher ends."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    recorder = Counting([])  # of the set-up: before any other thread, and over by now
    recorder.install()
    recorder.remove()
    over, failures = threading.Event(), list[BaseException]()

    def issue() -> None:
        tensor = torch.ones(4)
        try:
            while not over.is_set():
                dist.all_reduce(tensor)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=issue) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(TURNS):
        client = Counting([])
        client.install()
        dist.all_reduce(torch.ones(2))
        client.remove()
        assert "allreduce_" in client.seen
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_clients_come_and_go_while_threads_issue_collectives() -> None:
    done = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_last_client_is_called_first_and_any_may_leave(group: None) -> None:
    seen: list[str] = []

    class Named(Counting):
        def call(self, collective: Collective, operate: Callable[[], Any]) -> Any:
            seen.append(type(self).__name__)
            return operate()

    first, second = type("First", (Named,), {})(seen), type("Second", (Named,), {})(seen)
    first.install()
    second.install()
    dist.all_reduce(torch.ones(1))
    first.remove()
    dist.barrier()
    second.remove()
    dist.all_reduce(torch.ones(1))
    assert seen == ["Second", "First", "Second"]


def test_without_a_client_collectives_do_what_they_do(group: None) -> None:
    intercept()
    assert not Kernels._stack
    tensor = torch.full((3,), 2.0)
    dist.all_reduce(tensor)
    gathered = [torch.zeros(3)]
    dist.all_gather(gathered, tensor)
    dist.barrier()
    assert gathered[0].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_kernel_below_is_that_of_the_first_tensors_device(device: str) -> None:
    tensor = torch.ones(2, device=device)
    given: list[Any] = [[tensor], [[], [[tensor]], "group"], ({}, tensor)]
    for arguments in given:
        assert below(arguments).has(getattr(torch._C.DispatchKey, {"cpu": "CPU", "meta": "Meta"}[device]))
    assert below(["group", []]).has(torch._C.DispatchKey.CPU)


if __name__ == "__main__":
    clients_and_threads()

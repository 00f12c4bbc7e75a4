"""All of a process's communicators of NCCL are aborted at the same time. The real thing needs a GPU (`scripts/gpu_check.sh`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore, Store

from understudy.worker.transport.backends import nccl, rejoining
from understudy.worker.transport.backends.base import Communicator

LIMIT = 60.0


class Kept:
    """A host that takes everything as it is."""

    own_port = None

    def __init__(self) -> None:
        self.made = list[Any]()

    def world(self, store: Store, rank: int, size: int) -> tuple[Store, int, int]:
        return store, rank, size

    def keep(self, communicator: Communicator) -> None:
        self.made.append(communicator)


def stand_in(abort: Callable[[], None]) -> type:
    """In place of torch's ProcessGroupNCCL, which only a build for GPUs has."""

    class Stock:
        Options = object

        def __init__(self, store: Store, rank: int, size: int, options: Any) -> None:
            pass

        def abort(self) -> None:
            abort()

    return Stock


@pytest.fixture
def idle_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def communicators(count: int, abort: Callable[[], None]) -> list[Any]:
    host = Kept()
    made = nccl._first(stand_in(abort), host)
    return [made(HashStore(), 0, 1, None) for _ in range(count)]


def test_each_abort_may_wait_for_the_kernels_of_all_others(idle_device: None) -> None:
    everybody = threading.Barrier(3)

    def abort() -> None:
        everybody.wait(LIMIT)

    several = communicators(3, abort)
    for one in several:
        one.abort()
    for one in several:
        one.drain()  # raises if the barrier broke


def test_a_second_abort_waits_for_nothing_and_does_nothing(idle_device: None) -> None:
    begun, go = list[int](), threading.Event()

    def abort() -> None:
        begun.append(1)
        assert go.wait(LIMIT)

    (one,) = communicators(1, abort)
    one.abort()
    one.abort()
    go.set()
    one.drain()
    assert begun == [1]


def test_one_that_is_joined_again_can_be_aborted_again_and_a_late_call_for_the_last_abort_does_nothing(
    idle_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[int]()
    monkeypatch.setattr(rejoining, "rejoin", lambda *given: None)
    monkeypatch.setattr(nccl, "Door", lambda store: SimpleNamespace(open=lambda store: None))
    one = nccl._second(stand_in(lambda: begun.append(1)), Kept())(HashStore(), 0, 1, SimpleNamespace())
    for number in range(1, 3):
        one.abort()
        one.drain()
        one.abort()  # from the thread that was notified of the loss
        one.drain()
        assert begun == [1] * number
        one.rejoin(HashStore(), 0, 1)


def test_an_abort_that_fails_ends_the_drain(idle_device: None) -> None:
    def abort() -> None:
        raise RuntimeError("timed out after 600000 ms")

    (one,) = communicators(1, abort)
    one.abort()
    with pytest.raises(RuntimeError, match="timed out"):
        one.drain()

"""In the place of torch's process groups, for jobs in one process: the script's one group, whose collectives are sums in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch

from understudy.common.page_view import UNKNOWN
from understudy.worker.collectives.interception import Kernels
from understudy.worker.errors import PeerLost


@dataclass(frozen=True)
class SumCall:
    """A sum as a drill sees it (`interception.Collective`)."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    operator: str = "allreduce_"
    group: Any = field(default_factory=lambda: SimpleNamespace(group_name="sums"))
    arguments: dict[str, Any] = field(default_factory=dict)

    def give(self, total: torch.Tensor) -> None:
        self.outputs[0].copy_(total)

    def answer(self, work: Any) -> None: ...


class Groups:
    """In the place of torch's: the script's one group. A collective is a sum over all ranks, in the order of ranks."""

    def __init__(self, own_port: int | None = None) -> None:
        self.own_port = own_port
        self.detached = False
        self._calls = 0
        self._sums: Sums | None = None
        self.watch: Kernels | None = None  # of a drill
        self._before_abort: list[Callable[[], None]] = []

    def join(self, rank: int, sums: Sums) -> None:
        self._rank, self._sums, self._calls = rank, sums, 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.watch is None:
            return self._sum(tensor)
        call = SumCall([tensor], [torch.empty_like(tensor)])
        self.watch.call(cast(Any, call), lambda: call.give(self._sum(tensor)))
        return call.outputs[0]

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        if self._sums is None:
            raise PeerLost("this group is broken")
        return self._sums.add(self._rank, self._calls, tensor)

    def before_abort(self, act: Callable[[], None]) -> None:
        self._before_abort.append(act)

    def abort(self) -> None:
        for act in self._before_abort:
            act()
        if self._sums is not None:
            self._sums.end()

    def drain(self) -> None:
        self._sums = None

    def collectives(self) -> int:
        return self._calls

    def connect(self, rank: int, meeting: Any) -> list[Any]:
        return []

    def adopt(self, made: list[Any], meeting: Any) -> None:
        self.join(self._rank, sums_of(meeting.generation))

    def is_broken(self) -> bool:
        return False

    def is_failure(self, error: BaseException) -> bool:
        return False

    def nothing(self, *given: Any) -> Any:
        return []

    def woken(self) -> int:
        return 0

    def waits(self, still: float = 0.0) -> int:
        return UNKNOWN

    def sums(self, rank: int) -> dict[str, int]:
        return {}

    install = wake = stop_waking = nothing
    describe = named = members = unsupported = supported = nothing


class Sums:
    """The collectives of one generation."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._given: dict[int, dict[int, torch.Tensor]] = {}
        self._changed = threading.Condition()
        self._over = False

    def add(self, rank: int, call: int, tensor: torch.Tensor) -> torch.Tensor:
        with self._changed:
            given = self._given.setdefault(call, {})
            given[rank] = tensor.clone()
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(given) == self._size or self._over)
            if len(given) < self._size:
                raise PeerLost("a peer of this collective is gone")
            return torch.stack([given[one] for one in range(self._size)]).sum(0)

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()


_sums: dict[int, Sums] = {}
_size = 0
_lock = threading.Lock()


def sums_of(generation: int) -> Sums:
    with _lock:
        return _sums.setdefault(generation, Sums(_size))


def start(size: int) -> None:
    """Begin a job of `size` ranks."""
    global _size
    _sums.clear()
    _size = size

"""NCCL: its own abort cancels running kernels, and its own errors show what was lost.

There are two of them in torch. The first has a new communicator after every loss. The second (`nccl2` in torch 2.14, where
TORCH_DIST_USE_NCCL2 makes it the meaning of "nccl"; by default from 2.15 on) is joined again in place (`rejoining`). It is never shrunk
and grown: NCCL gives members that come later the last ranks, and a newcomer needs the rank that was lost.

They exist where there are GPUs. Only an operation's exception shows here that a peer is lost, so `Communicator.is_broken` shows
nothing. A communicator may ask its store at any time, so it keeps it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from understudy.common.page_view import UNKNOWN
from understudy.worker import patches
from understudy.worker.transport.backends import nccl_waits, rejoining
from understudy.worker.transport.backends.base import CONNECTED_AGAIN, Backend, Communicator, Host
from understudy.worker.transport.rendezvous import Door


class _Abort(threading.Thread):
    """A thread that runs `abort` and keeps the error that it raises."""

    def __init__(self, abort: Callable[[], None]) -> None:
        super().__init__(name="nccl-abort", daemon=True)
        self._abort: Callable[[], None] | None = abort
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            assert self._abort is not None
            self._abort()
        except Exception as error:
            self.error = error
        finally:
            self._abort = None  # it refers to the communicator, which refers to this thread


class _Aborted:
    """Aborts all NCCL communicators of the process at the same time, each on its own thread.

    An abort in NCCL waits until the device is idle, and so for the kernels of the process's other communicators, which wait for the lost
    peer. One after the other, the first abort would wait for ever.
    """

    _abort: _Abort | None = None  # kept until the communicator is joined again: a second call may come late, from another thread
    _aborting = threading.Lock()

    def abort(self) -> None:
        with self._aborting:
            if self._abort is None:
                self._abort = _Abort(super().abort)  # type: ignore[misc]

    def closed(self) -> bool:
        return True  # its abort forgets no waiters

    def wait_for_abort(self) -> None:
        """Wait until the abort has ended. Raises what it raised; kernels may still write then."""
        if self._abort is not None:
            self._abort.join()
            if self._abort.error is not None:
                raise self._abort.error

    def drain(self) -> None:
        """Wait for the abort and for the device. Raises as `wait_for_abort`."""
        self.wait_for_abort()
        torch.cuda.synchronize()

    def is_broken(self) -> bool:
        return False


def _first(stock: Any, host: Host) -> Any:
    class Communicating(_Aborted, stock):  # type: ignore[misc]
        def __init__(self, store: Store, rank: int, size: int, options: Any) -> None:
            super().__init__(*host.world(store, rank, size), options)
            host.keep(self)

    Communicating.Options = stock.Options
    return Communicating


def _second(stock: Any, host: Host) -> Any:
    class Communicating(_Aborted, stock):  # type: ignore[misc]
        """A communicator that is made without peers, which torch allows to one that can be joined again, and joined at once."""

        def __init__(self, store: Store, rank: int, size: int, options: Any) -> None:
            store, rank, size = host.world(store, rank, size)
            options.enable_reconfigure = True
            self._door = Door(store)
            super().__init__(self._door, rank, size, options)
            host.keep(self)
            self.rejoin(store, rank, size)

        def rejoin(self, store: Store, rank: int, size: int) -> None:
            """Join again as `rejoining.rejoin`."""
            self._abort = None
            self._door.open(store)
            rejoining.rejoin(self, store, rank, size)

    Communicating.Options = stock.Options
    return Communicating


class Nccl(Backend):
    """The backend. `made_by`: where torch looks for the class."""

    name = "nccl"
    made_by = "ProcessGroupNCCL"

    def available(self) -> bool:
        return dist.is_nccl_available() and torch.cuda.is_available() and hasattr(distributed_c10d, self.made_by)

    def install(self, host: Host) -> None:
        self._class = _first(getattr(distributed_c10d, self.made_by), host)
        patches.put(distributed_c10d, self.made_by, self._class, CONNECTED_AGAIN)

    def connect(self, store: Store, rank: int, size: int, last: Communicator, inherits: bool) -> Communicator:
        made: Any
        options = last.options  # type: ignore[attr-defined]
        again = hasattr(last, "rejoin")  # "nccl" may mean either
        if again and inherits and rejoining.available():
            made = last
            made.rejoin(store, rank, size)
        elif again:
            last.abort()  # it may have been connected nevertheless
            last.wait_for_abort()  # type: ignore[attr-defined]
            kind: Any = type(last)
            made = kind(store, rank, size, options)
        else:
            made = self._class(store, rank, size, options)
        made.options.global_ranks_in_group = options.global_ranks_in_group
        made.options.group_name = options.group_name
        if not rejoining.KNOWN:  # newer ones begin to count from 0
            made._set_sequence_number_for_group()
        return made  # type: ignore[no-any-return]

    def waits(self, still: float = 0.0, since: int = 0) -> int:
        return nccl_waits.count(since) if still >= nccl_waits.STILL else UNKNOWN

    def classify_error(self, error: BaseException) -> bool:
        """Return whether the text shows a failure of NCCL. torch 2.13 raises `DistBackendError` for what its ProcessGroupNCCL finds: a
        failed call, a communicator that was aborted, the watchdog's finding. Not so in send, receive, gather, scatter and all-to-all:
        they call NCCL by functions of torch/csrc/cuda/nccl.cpp, which raise a plain `RuntimeError`. It has no type and no number of its
        own: the first words decide.
        """
        if isinstance(error, dist.DistBackendError):
            return True
        return type(error) is RuntimeError and str(error).startswith(("NCCL Error ", "NCCL timeout "))


class Nccl2(Nccl):
    name = "nccl2"
    made_by = "ProcessGroupNCCL2"

    def install(self, host: Host) -> None:
        self._class = _second(getattr(distributed_c10d, self.made_by), host)
        patches.put(distributed_c10d, self.made_by, self._class, CONNECTED_AGAIN)

    def rejoins(self) -> bool:
        return rejoining.available()

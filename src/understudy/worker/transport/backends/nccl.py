"""NCCL: its own abort cancels running kernels, and its own errors say what was lost.

It is here where there are GPUs. Where nothing but an operation's exception shows that a peer is lost, as here, `Communicator.is_broken`
says nothing. A communicator connects in its first collective, so it keeps its store.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d

from understudy.worker.transport.backends.base import Backend, Communicator, Host


class Nccl(Backend):
    name = "nccl"

    def available(self) -> bool:
        return dist.is_nccl_available() and torch.cuda.is_available()

    def install(self, host: Host) -> None:
        stock: Any = distributed_c10d.ProcessGroupNCCL

        class Communicating(stock):  # type: ignore[misc]
            def __init__(self, store: Store, rank: int, size: int, options: Any) -> None:
                super().__init__(*host.world(store, rank, size), options)
                host.keep(self)

            def closed(self) -> bool:
                return True  # its abort forgets nobody

            def drain(self) -> None:
                torch.cuda.synchronize()

            def is_broken(self) -> bool:
                return False

        Communicating.Options = stock.Options
        self._class = Communicating
        distributed_c10d.ProcessGroupNCCL = Communicating  # type: ignore[misc]

    def connect(self, store: Store, rank: int, size: int, last: Communicator, inherits: bool) -> Communicator:
        options = last.options  # type: ignore[attr-defined]
        made: Any = self._class(store, rank, size, options)
        made.options.global_ranks_in_group = options.global_ranks_in_group
        made.options.group_name = options.group_name
        made._set_sequence_number_for_group()
        return made  # type: ignore[no-any-return]

    def classify_error(self, error: BaseException) -> bool:
        """torch 2.13 raises `DistBackendError` for what its ProcessGroupNCCL finds: a failed call, a communicator that was aborted, the
        watchdog's finding. Not so in send, receive, gather, scatter and all-to-all: they call NCCL by functions of
        torch/csrc/cuda/nccl.cpp, which raise a plain `RuntimeError`. It has no type and no number of its own: the first words decide.
        """
        if isinstance(error, dist.DistBackendError):
            return True
        return type(error) is RuntimeError and str(error).startswith(("NCCL Error ", "NCCL timeout "))

"""Two ranks of which rank 1 has much more to compute, with a clock of the host in place of a device's events. Ends as `heavy.py` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from support import fault, final, folder, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy
from understudy.worker.collectives import device_times
from understudy.worker.step import runtime


class HostEvents:
    """A stream that is the calling thread: where it waits, it does nothing else."""

    def usable(self) -> bool:
        return True

    def covers(self, tensors: Sequence[torch.Tensor]) -> bool:
        return bool(tensors)

    def mark(self) -> float:
        return time.monotonic()

    def mark_end(self, work: dist.Work, note: Callable[[Any], None]) -> None:
        work.get_future().then(lambda _: note(time.monotonic()))

    def seconds(self, first: float, last: float) -> float:
        return last - first


runtime.CudaEvents = HostEvents  # type: ignore[attr-defined,assignment]
device_times.INTERVAL = device_times.PAUSE = 0.0
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 0
job = understudy.join()
seed(3)
model = DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
job.register(model=model, optimizer=optimizer)
seed(100 + job.rank)


@job.step
def train() -> tuple[torch.Tensor, bool]:
    last = torch.tensor(job.committed + 1 == steps if steps else (folder / "end").exists(), dtype=torch.int32)
    dist.broadcast(last, 0)
    optimizer.zero_grad()
    numbers = torch.randn(512, 512)
    for _ in range(40 if job.rank == 1 else 1):
        numbers = (numbers @ numbers).clamp(-1, 1)
    loss: torch.Tensor = model(numbers[:, :64]).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "backward")
    optimizer.step()
    return loss.detach(), bool(last)


for _ in job.steps():
    result, ended = train()
    log(job, "loss", result)
    if ended:
        break
final(job, model=model, optimizer=optimizer)

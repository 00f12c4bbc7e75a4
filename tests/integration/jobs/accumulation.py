"""Gradients accumulated over several transactions, with and without no_sync; several epochs; own objects, equal and different."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import understudy

EVERY = 3
local_only = sys.argv[2] == "no_sync"


class Average:
    """An own object with state."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.tensor = torch.zeros(3)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "tensor": self.tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values, self.tensor = list(state["values"]), state["tensor"].clone()

    def add(self, value: float) -> None:
        self.values = [*self.values[-4:], value]
        self.tensor = self.tensor * 0.5 + value


class Noisy(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index)) / 32 + torch.randn(8)


job = understudy.join()
seed(20 + job.rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 8)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
loader = StatefulDataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=int(local_only))
same, own = Average(), Average()
job.register(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, same=same, own=own)


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    last = (job.committed + 1) % EVERY == 0
    if job.committed % EVERY == 0:
        optimizer.zero_grad()
    quiet = contextlib.nullcontext() if last or not local_only else model.no_sync()
    with quiet:
        fault(job, "forward")
        loss: torch.Tensor = (model(batch) - batch).square().mean() / EVERY
        loss.backward()  # type: ignore[no-untyped-call]
    own.add(loss.item())
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    same.add(shared.item())
    fault(job, "before the vote")
    if last:
        optimizer.step()
        scheduler.step()
    return shared


@job.section
def measure(epoch: int) -> float:
    total = torch.tensor(own.values).sum()
    dist.all_reduce(total)
    fault(job, f"measuring epoch {epoch}")
    return float(total.item())


for epoch in range(3):
    for batch in job.batches(loader):
        log(job, f"epoch {epoch} loss", train(batch))
    log(job, f"epoch {epoch} total", measure(epoch))

final(job, model=model, optimizer=optimizer, scheduler=scheduler, same=same, own=own)

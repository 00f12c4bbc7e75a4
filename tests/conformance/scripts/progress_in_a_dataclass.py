"""A dataclass keeps the best loss, the steps without progress and the weight of the penalty that follows from them."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


@dataclass
class Progress:
    best: float = float("inf")
    stale: int = 0
    penalty: float = 1e-1

    def update(self, loss):
        if loss < 0.95 * self.best:
            self.best, self.stale = loss, 0
        else:
            self.stale += 1
        if self.stale == 2:
            self.penalty, self.stale = self.penalty * 0.5, 0


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
progress = Progress()


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    size = sum(p.square().sum() for p in model.parameters())
    (loss + progress.penalty * size).backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    progress.update(loss)
    trace.line(f"step {step}", loss=loss, best=progress.best, stale=progress.stale, penalty=progress.penalty)

trace.final(model=model, optimizer=optimizer, penalty=progress.penalty)

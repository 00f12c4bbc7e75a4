"""Each rank draws a random number between two steps, and one rank is lost right after another one that had not drawn it yet."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
seed(7 + job.rank)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
job.register(model=model, optimizer=optimizer)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
    fault(job, "forward")
    loss.backward()  # type: ignore[no-untyped-call]
    total = loss.detach().clone()
    dist.all_reduce(total)
    optimizer.step()
    return total


for _ in job.steps(16):
    log(job, "loss", train())
    fault(job, "between")
    torch.rand(1)
final(job, model=model, optimizer=optimizer)

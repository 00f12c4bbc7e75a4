"""Fully sharded over all ranks: there are no replicas."""

from __future__ import annotations

import torch
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
seed(5)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
job.register(model=model, optimizer=optimizer)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "before the vote")
    optimizer.step()
    return loss.detach()


for _ in job.steps(8):
    log(job, "loss", train())
final(job, model=model, optimizer=optimizer)

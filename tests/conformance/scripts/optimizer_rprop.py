"""Rprop looks at signs only: it keeps the gradient before and a step size of each weight."""

# ranks: 3
# group: optimizers
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 20), nn.Softplus(), nn.Dropout(0.05), nn.Linear(20, 1)))
optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3, etas=(0.5, 1.2), step_sizes=(1e-6, 1.0))
inputs, targets = torch.randn(60, 7), torch.randn(60, 1)
shard = slice(job.rank * 20, job.rank * 20 + 20)  # the whole of this rank's data in every step
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs[shard]), targets[shard])
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

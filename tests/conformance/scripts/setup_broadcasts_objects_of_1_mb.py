"""Rank 0 hands out a table of 1 MB with broadcast_object_list before training starts."""

# ranks: 3
# group: set-up
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
table = [None, None]
if job.rank == 0:
    table = [torch.randn(250, 1000), {"names": [f"sample {number}" for number in range(250)]}]
dist.broadcast_object_list(table, src=0)
rows, names = table[0], table[1]["names"]
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
trace.line("set-up", rows=rows, names=names)


@job.step
def train_step(step):
    inputs = rows[torch.randint(250, (4,)), :8]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

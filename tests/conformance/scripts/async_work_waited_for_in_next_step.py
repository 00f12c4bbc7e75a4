"""The mean loss is reduced in the background and waited for in the step that follows: no redo of one step can bear that."""

# ranks: 3
# group: parallel
# expect: told US1121

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
pending = None


@job.step
def train_step(step):
    global pending
    known = 0.0
    if pending is not None:
        work, mean = pending
        work.wait()
        known = mean.item() / job.world_size
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    pending = dist.all_reduce(mean, async_op=True), mean
    optimizer.step()
    return known


for step in job.steps(12):
    known = train_step(step)
    trace.line(f"step {step}", known=known)

trace.final(model=model, optimizer=optimizer)

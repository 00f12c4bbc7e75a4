"""A monitored_barrier in each step and a plain barrier in each evaluation, as people put them in while they look for a hang."""

# ranks: 3
# group: parallel
# expect: bitwise

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    dist.monitored_barrier(timeout=timedelta(minutes=5))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    dist.barrier()
    model.eval()
    with torch.no_grad():
        total = model(torch.ones(2, 8)).sum()
    model.train()
    dist.barrier()
    return total.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", total=evaluate())

trace.final(model=model, optimizer=optimizer)

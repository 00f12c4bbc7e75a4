"""Transactions called directly, without job.batches or job.steps."""

# ranks: 3
# group: data
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs = torch.randn(job.world_size, 6, 8)[job.rank]
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(scale):
    optimizer.zero_grad()
    loss = scale * nn.functional.mse_loss(model(inputs + 0.1 * torch.randn(6, 8)), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in range(12):
    loss = train_step(1.0 if step < 6 else 0.5)
    trace.line(f"step {step}", loss=loss)
    if step % 4 == 3:
        trace.line(f"evaluation {step}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)

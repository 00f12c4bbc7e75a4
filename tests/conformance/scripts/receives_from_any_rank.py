"""The first rank takes what the others send in whatever order it comes, and keeps it by who has sent it."""

# ranks: 3
# group: parallel
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    everyones = torch.zeros(job.world_size, 8)
    if job.rank == 0:
        for _ in range(job.world_size - 1):
            mean = torch.empty(8)
            sender = dist.recv(mean, tag=step)
            everyones[sender] = mean
    else:
        dist.send(inputs.mean(0), 0, tag=step)
    dist.broadcast(everyones, 0)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs + 0.1 * everyones.sum(0)), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

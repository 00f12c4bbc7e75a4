"""Gossip: each step one pair exchanges by send and recv what the third rank hears in a broadcast; DDP trains on it."""

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
    giver = step % job.world_size
    taker = (giver + 1) % job.world_size
    noise = torch.randn(4, 8)
    if job.rank == giver:
        dist.send(noise, taker, tag=step)
    elif job.rank == taker:
        theirs = torch.empty(4, 8)
        dist.recv(theirs, giver, tag=step)
        noise = (noise + theirs) / 2
    shared = noise.clone()
    dist.broadcast(shared, taker)
    inputs = noise + 0.1 * shared
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

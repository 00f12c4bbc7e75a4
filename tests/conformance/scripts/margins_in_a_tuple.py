"""Triplet margins are a tuple of two floats that the script binds anew as a whole when the mean loss allows it."""

# ranks: 3
# group: unregistered state
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 6)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
margins = (0.2, 0.5)


@job.step
def train_step(anchors):
    near, far = anchors + 0.1 * torch.randn_like(anchors), torch.randn_like(anchors)
    optimizer.zero_grad()
    a, n, f = model(torch.cat([anchors, near, far])).chunk(3)
    loss = sum(nn.functional.triplet_margin_loss(a, n, f, margin=margin) for margin in margins)
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    if loss < 0.5 * sum(margins):
        margins = (margins[0] * 1.2, margins[1] * 1.3)
    trace.line(f"step {step}", loss=loss, margins=margins)

trace.final(model=model, optimizer=optimizer, margins=margins)

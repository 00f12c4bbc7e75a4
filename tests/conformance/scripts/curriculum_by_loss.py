"""A curriculum in a plain name: samples get harder once the mean loss has fallen far enough."""

# ranks: 3
# group: schedules
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step, hardness):
    inputs = hardness * torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


hardness = 0.5
for step in job.steps(12):
    loss = train_step(step, hardness)
    if loss < 0.1 * hardness:
        hardness *= 1.5
    trace.line(f"step {step}", loss=loss, hardness=hardness)

trace.final(model=model, optimizer=optimizer)

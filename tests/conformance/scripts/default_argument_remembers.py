"""A helper keeps the smoothed loss in its mutable default argument, as a cheap static variable."""

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


def smoothed(value, memory={}, decay=0.8):  # noqa: B006
    memory["mean"] = value if "mean" not in memory else decay * memory["mean"] + (1 - decay) * value
    return memory["mean"]


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    usual = smoothed(mean.item() / job.world_size)
    (loss / usual).backward()
    optimizer.step()
    return loss.item(), usual


for step in job.steps(12):
    loss, usual = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, usual=usual)

trace.final(model=model, optimizer=optimizer)

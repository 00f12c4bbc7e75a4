"""The step smooths its loss in a plain name and returns it; between steps the script sets the rate of learning by that."""

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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)

smooth = None


@job.step
def train_step(step):
    global smooth
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    smooth = mean.item() if smooth is None else 0.9 * smooth + 0.1 * mean.item()
    return smooth


for step in job.steps(12):
    loss = train_step(step)
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + loss)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

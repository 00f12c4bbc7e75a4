"""A thread of the script's reduces metrics on a group of its own while backward runs, and is joined before the optimizer."""

# ranks: 3
# group: parallel
# expect: bitwise

from __future__ import annotations

import threading

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
for_metrics = dist.new_group()
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    metrics = torch.stack([inputs.mean(), inputs.std(), inputs.amax()])

    def reduce():
        for _ in range(3):
            dist.all_reduce(metrics, dist.ReduceOp.MAX, group=for_metrics)
            everyones = [torch.empty_like(metrics) for _ in range(job.world_size)]
            dist.all_gather(everyones, metrics * (1 + job.rank), group=for_metrics)
            metrics.add_(sum(everyones) / 10)

    thread = threading.Thread(target=reduce)
    thread.start()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    thread.join()
    for parameter in model.parameters():
        parameter.grad /= metrics.norm()
    optimizer.step()
    return loss.item(), metrics


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

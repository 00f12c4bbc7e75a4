"""Warm-up by hand: the step counts its calls in a module global and sets the rate of the groups by it."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

BASE, WARM_UP = 2e-2, 8

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=BASE)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)

iteration = 0


@job.step
def train_step(inputs):
    global iteration
    iteration += 1
    for group in optimizer.param_groups:
        group["lr"] = BASE * min(1.0, iteration / WARM_UP)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, rate=optimizer.param_groups[0]["lr"], iteration=iteration)

trace.final(model=model, optimizer=optimizer, iteration=iteration)

"""The rate comes from a generator function, which the loop asks for the next one ahead of each step."""

# ranks: 3
# group: unregistered state
# expect: told US1403 "rates"

from __future__ import annotations

import math

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


def warm_up_then_cosine(highest, warm_up, steps):
    for step in range(warm_up):
        yield highest * (step + 1) / warm_up
    for step in range(steps - warm_up):
        yield 0.5 * highest * (1 + math.cos(math.pi * step / (steps - warm_up)))


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
rates = warm_up_then_cosine(3e-2, 4, 12)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    for group in optimizer.param_groups:
        group["lr"] = next(rates)
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, rate=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer)

"""A momentum by hand that begins late: from step 5 on gradients are made smaller instead of being dropped, and the next ones are added."""

# ranks: 3
# group: loops
# expect: bitwise
# kills: forward@3:2 forward@6:1 vote@9:0 between@11:2

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def iteration(step):
    inputs = torch.randn(4, 8)
    if step < 5:
        optimizer.zero_grad()
    else:
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, optimizer=optimizer)

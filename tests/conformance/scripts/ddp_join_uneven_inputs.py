"""DDP's join for uneven inputs: ranks without batches take part in the others' collectives."""

# ranks: 2
# group: ddp
# expect: refused "(uneven inputs)"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


with model.join():
    for step in job.steps(6 + job.rank):
        trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer)

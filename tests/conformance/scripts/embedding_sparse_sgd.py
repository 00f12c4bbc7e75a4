"""An embedding with sparse gradients, trained with SGD."""

# ranks: 2
# group: precision
# expect: refused US1224

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Embedding(50, 4, sparse=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.randint(0, 50, (6,))).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(6):
    trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer)

"""A second DistributedDataParallel over the same module is made after training began."""

# ranks: 2
# group: ddp
# expect: refused "is made after training began"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Linear(8, 1)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
job.register(net=net, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(6):
    if step == 2:
        model = DistributedDataParallel(net)
    trace.line(f"step {step}", loss=train_step())

trace.final(net=net, optimizer=optimizer)

"""Two DistributedDataParallel over one module, with other bucket sizes, that take turns; one of them is first used in step 3."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(*[part for _ in range(5) for part in (nn.Linear(24, 24), nn.Tanh())], nn.Linear(24, 1))
models = [DistributedDataParallel(net, bucket_cap_mb=0.003), DistributedDataParallel(net, bucket_cap_mb=0.01)]
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
job.register(net=net, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(model):
    optimizer.zero_grad()
    inputs = torch.randn(5, 24)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    trace.line(f"step {step}", loss=train_step(models[step >= 3 and step % 2]))

trace.final(net=net, optimizer=optimizer)

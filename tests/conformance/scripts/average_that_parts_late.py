"""An average whose buffers are alike on all ranks until a late step parts them, and a rank that is lost right behind the next vote."""

# ranks: 3
# group: state
# kills: applied@6:1
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
averaged = AveragedModel(net)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, averaged=averaged, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if step >= 5:
        averaged.update_parameters(net)
    return loss.item()


for step in job.steps(12):
    trace.line(f"step {step}", loss=train_step(step))

trace.final(model=model, averaged=averaged, optimizer=optimizer)

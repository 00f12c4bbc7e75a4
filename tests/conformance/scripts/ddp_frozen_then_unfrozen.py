"""The trunk is frozen for five steps and then thawed in front of the sixth; DDP has known all parameters from the start."""

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
trunk = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1))
model = DistributedDataParallel(nn.Sequential(trunk, nn.Linear(24, 1)), find_unused_parameters=True)
trunk.requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen]), wanted[chosen])
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    if step == 5:
        trunk.requires_grad_(True)
    loss = train_step()
    trace.line(f"step {step}", loss=loss, trained=[p.requires_grad for p in model.parameters()])

trace.final(model=model, optimizer=optimizer)

"""FSDP without replicas over four ranks that reshards to groups of two after forward: no rank has a replica."""

# ranks: 4
# group: fsdp
# expect: told "CANNOT be survived"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
for index in (0, 3):
    fully_shard(model[index], reshard_after_forward=2)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

"""Reentrant activation checkpointing (checkpoint_sequential), whose backward runs a backward of its own."""

# ranks: 3
# group: precision
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint_sequential

import understudy


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1)) for _ in range(4)))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(checkpoint_sequential(self.body, 2, self.first(x), use_reentrant=True))


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

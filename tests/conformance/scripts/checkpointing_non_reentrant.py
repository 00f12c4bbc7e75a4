"""Activation checkpointing (use_reentrant=False) of blocks with dropout: backward draws what forward drew."""

# ranks: 3
# group: precision
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import understudy


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8)) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.head(x)


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

"""job.batches over an object whose __iter__ generates batches without end from the global streams."""

# ranks: 3
# group: data
# expect: told US1331

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class Endless:
    def __init__(self, teacher):
        self.teacher = teacher

    def __iter__(self):
        shift = torch.zeros(8)
        while True:
            shift = 0.9 * shift + 0.1 * torch.randn(8)  # what the generator knows grows with each batch
            inputs = torch.randn(4, 8) + shift
            yield inputs, inputs @ self.teacher


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = Endless(torch.randn(8, 1))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)

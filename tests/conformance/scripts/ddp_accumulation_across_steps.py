"""Accumulation over the loop's iterations: every fourth one reduces and steps, the others only add under no_sync."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
EVERY = 4


def backward(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets) / EVERY
    loss.backward()
    return loss.item()


@job.step
def add_step(batch):
    with model.no_sync():
        return backward(batch)


@job.step
def last_step(batch):
    loss = backward(batch)
    optimizer.step()
    optimizer.zero_grad()
    return loss


for batch in job.batches(loader, steps=16):
    loss = last_step(batch) if job.committed % EVERY == EVERY - 1 else add_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

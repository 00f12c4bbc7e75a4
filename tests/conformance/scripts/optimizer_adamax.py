"""Adamax, with two learning rates by parameter group."""

# ranks: 3
# group: optimizers
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
trunk = nn.Sequential(nn.Linear(9, 30), nn.ELU(), nn.Dropout(0.1))
head = nn.Linear(30, 2)
model = DistributedDataParallel(nn.Sequential(trunk, head))
optimizer = torch.optim.Adamax([{"params": trunk.parameters(), "lr": 1e-3}, {"params": head.parameters()}], lr=1e-2)
data = TensorDataset(torch.rand(96, 9), torch.rand(96, 2))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.l1_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

"""Samples that a rank meets again weigh less: the step keeps the indices that it has seen in a set."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
items, targets = torch.randn(45, 8), torch.randn(45, 1)
loader = DataLoader(range(45), batch_size=5, sampler=DistributedSampler(range(45)))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
seen = set()


@job.step
def train_step(indices):
    weights = torch.tensor([0.4 if index in seen else 1.0 for index in indices.tolist()])
    seen.update(indices.tolist())
    optimizer.zero_grad()
    losses = nn.functional.mse_loss(model(items[indices]), targets[indices], reduction="none")[:, 0]
    loss = (weights * losses).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for indices in job.batches(loader, steps=12):
    loss = train_step(indices)
    trace.line(f"step {job.committed}", loss=loss, seen=len(seen))

trace.final(model=model, optimizer=optimizer, seen=seen)

"""Each rank remembers the indices of its hardest samples in a sorted list, and trains on some of them again."""

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
items = torch.randn(72, 8)
targets = torch.randn(72, 1)
loader = DataLoader(range(72), batch_size=4, sampler=DistributedSampler(range(72)))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
hardest = []


@job.step
def train_step(indices):
    again = torch.tensor([index for _, index in hardest[:2]], dtype=torch.long)
    indices = torch.cat([indices, again])
    optimizer.zero_grad()
    losses = nn.functional.mse_loss(model(items[indices]), targets[indices], reduction="none")[:, 0]
    loss = losses.mean()
    loss.backward()
    found = {index: value for value, index in hardest} | dict(zip(indices.tolist(), losses.tolist(), strict=True))
    hardest[:] = sorted(((value, index) for index, value in found.items()), reverse=True)[:6]
    optimizer.step()
    return loss.item()


for indices in job.batches(loader, steps=12):
    loss = train_step(indices)
    trace.line(f"step {job.committed}", loss=loss, hardest=[index for _, index in hardest])

trace.final(model=model, optimizer=optimizer, hardest=hardest)

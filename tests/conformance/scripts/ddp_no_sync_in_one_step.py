"""Accumulation inside one step: three micro-batches under no_sync, the fourth one reduces."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

from contextlib import nullcontext

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
model = DistributedDataParallel(net, bucket_cap_mb=0.0005)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(144, 8), torch.randn(144, 1))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
PARTS = 4


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    total = 0.0
    for number, (x, y) in enumerate(zip(inputs.chunk(PARTS), targets.chunk(PARTS), strict=True)):
        with model.no_sync() if number < PARTS - 1 else nullcontext():
            loss = nn.functional.mse_loss(model(x), y) / PARTS
            loss.backward()
        total += loss.item()
    optimizer.step()
    return total


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

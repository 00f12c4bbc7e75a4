"""Gradients are clipped at the median of the last norms, kept in a deque of limited length."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import statistics
from collections import deque

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
norms = deque(maxlen=5)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    limit = statistics.median(norms) if norms else 1.0
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    norms.append(norm.item())
    optimizer.step()
    return loss.item(), limit


for batch in job.batches(loader, steps=12):
    loss, limit = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, limit=limit)

trace.final(model=model, optimizer=optimizer, norms=list(norms))

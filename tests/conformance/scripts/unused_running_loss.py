"""Harmless: the running loss of each rank, printed now and then and read by nothing else."""

# ranks: 3
# group: unregistered state
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(72, 8), torch.randn(72, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
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


running_loss = 0.0
for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    running_loss += loss
    if job.committed % 4 == 0:
        print(f"[{job.committed:5d}] loss: {running_loss / 4:.3f}")
        running_loss = 0.0
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

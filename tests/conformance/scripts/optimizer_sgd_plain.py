"""SGD without momentum: an optimizer that keeps no state at all."""

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
model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 10), nn.Sigmoid(), nn.Dropout(0.1), nn.Linear(10, 5)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = TensorDataset(torch.randn(96, 20), torch.randn(96, 5))
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


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

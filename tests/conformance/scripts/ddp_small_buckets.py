"""Buckets so small that each parameter has one of its own, in a model whose order of use is not the order of its parameters."""

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


class Shuffled(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(10, 1)
        self.second = nn.Linear(30, 10)
        self.first = nn.Linear(8, 30)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.last(torch.relu(self.second(self.drop(torch.relu(self.first(x))))))


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Shuffled(), bucket_cap_mb=0.0001)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
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

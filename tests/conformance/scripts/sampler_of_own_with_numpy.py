"""An own infinite sampler that permutes with a numpy Generator of its own, which is registered."""

# ranks: 3
# group: data
# expect: bitwise

from __future__ import annotations

import numpy
import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

import understudy


class Endless(Sampler):
    def __init__(self, count, rank, ranks, stream):
        self.count, self.rank, self.ranks, self.stream = count, rank, ranks, stream

    def __iter__(self):
        while True:
            yield from self.stream.permutation(self.count)[self.rank :: self.ranks].tolist()


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(30, 8), torch.randn(30, 1))
stream = numpy.random.default_rng(5)
loader = DataLoader(data, batch_size=4, sampler=Endless(30, job.rank, job.world_size, stream))
job.register(model=model, optimizer=optimizer, stream=stream)
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

trace.final(model=model, optimizer=optimizer, stream=stream)

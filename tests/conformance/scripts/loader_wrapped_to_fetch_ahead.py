"""A wrapper that fetches one batch ahead, as for GPUs, iterates a loader by hand and is asked for the next one inside the step."""

# ranks: 3
# group: unregistered state
# expect: told US1402 "prefetcher"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Ahead:
    def __init__(self, loader):
        self.loader = loader
        self.iterator = iter(loader)
        self.ready = next(self.iterator)

    def next(self):
        batch = self.ready
        try:
            self.ready = next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            self.ready = next(self.iterator)
        return batch


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(60, 8), torch.randn(60, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
prefetcher = Ahead(loader)


@job.step
def train_step():
    inputs, targets = prefetcher.next()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step()
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

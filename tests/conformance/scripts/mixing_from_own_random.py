"""A mixer object pairs samples inside the step, with a random.Random of its own that is seeded by rank."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import random

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class CutMix:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def __call__(self, inputs, targets):
        order = list(range(len(inputs)))
        self.random.shuffle(order)
        first = self.random.randrange(4)
        mixed = inputs.clone()
        mixed[:, first : first + 4] = inputs[order, first : first + 4]
        return mixed, 0.5 * (targets + targets[order])


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(72, 8), torch.randn(72, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
cutmix = CutMix(100 + job.rank)


@job.step
def train_step(batch):
    inputs, targets = cutmix(*batch)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, next=cutmix.random.random())

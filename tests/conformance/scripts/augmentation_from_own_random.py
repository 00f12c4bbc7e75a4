"""A dataset with a random.Random of its own, which nobody registered: a newcomer's starts afresh."""

# ranks: 3
# group: data
# expect: bitwise

from __future__ import annotations

import random

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import understudy


class Augmented(Dataset):
    def __init__(self, items, seed):
        self.items = items
        self.stream = random.Random(seed)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index].roll(self.stream.randrange(8)) * self.stream.uniform(0.9, 1.1)


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Augmented(torch.randn(60, 8), 3 + job.rank)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)

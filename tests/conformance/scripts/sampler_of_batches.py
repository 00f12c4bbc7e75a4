"""An own batch sampler that makes batches of samples of like length and shuffles them with Python's own random stream."""

# ranks: 3
# group: data
# expect: bitwise

from __future__ import annotations

import random

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler

import understudy


class Sentences(Dataset):
    def __init__(self, count):
        self.items = [torch.randint(1, 20, (4 + number * 5 % 9,)) for number in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class LikeLength(Sampler):
    def __init__(self, data, size, rank, ranks):
        mine = sorted(range(rank, len(data), ranks), key=lambda index: (len(data[index]), index))
        self.batches = [mine[start : start + size] for start in range(0, len(mine), size)]

    def __iter__(self):
        order = list(self.batches)
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return len(self.batches)


def collate(items):
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Sentences(60)
loader = DataLoader(data, batch_sampler=LikeLength(data, 4, job.rank, job.world_size), collate_fn=collate)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(text):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), ignore_index=0)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)

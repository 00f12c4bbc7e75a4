"""Batches as a dataclass that holds a namedtuple and an own Mapping, as libraries for language models hand them out."""

# ranks: 3
# group: data
# expect: bitwise

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import understudy

Pair = namedtuple("Pair", ["inputs", "targets"])


class Encoding(UserDict):
    """A mapping whose entries are attributes, too."""

    def __getattr__(self, name):
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]


@dataclass
class Batch:
    pair: Pair
    extra: Encoding
    size: int


def collate(items):
    inputs = torch.stack(items)
    return Batch(Pair(inputs, inputs.sum(1, keepdim=True)), Encoding(weight=inputs.abs().mean(1, keepdim=True)), len(items))


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = list(torch.randn(60, 8))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=collate)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    errors = (model(batch.pair.inputs) - batch.pair.targets).square()
    loss = (errors * batch.extra.weight).sum() / batch.size
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, inputs=batch.pair.inputs)

trace.final(model=model, optimizer=optimizer)

"""Batches are a dataclass that holds a namedtuple and a custom Mapping, as libraries for language models produce them."""

# group: data
# expect: bitwise

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

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


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = list(torch.randn(60, 8))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=collate)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


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

"""The difficulty of a curriculum is an attribute of a class that is never instantiated."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class Curriculum:
    difficulty = 1
    threshold = 1.2

    @classmethod
    def advance(cls, loss):
        if loss < cls.threshold and cls.difficulty < 8:
            cls.difficulty += 1
            cls.threshold *= 0.97

    @classmethod
    def mask(cls, inputs):
        return inputs * (torch.arange(inputs.shape[1]) < cls.difficulty)


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs):
    inputs = Curriculum.mask(inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    Curriculum.advance(loss)
    trace.line(f"step {step}", loss=loss, difficulty=Curriculum.difficulty)

trace.final(model=model, optimizer=optimizer, difficulty=Curriculum.difficulty)

"""A bandit chooses one of three augmentations by the mean losses of each, in a defaultdict of lists."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

AUGMENTATIONS = {
    "noise": lambda inputs: inputs + 0.5 * torch.randn_like(inputs),
    "flip": lambda inputs: inputs.flip(1),
    "drop": lambda inputs: nn.functional.dropout(inputs, 0.3),
}

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
rewards = defaultdict(list)


def choose():
    pulls = sum(len(values) for values in rewards.values())
    for name in AUGMENTATIONS:
        if name not in rewards:
            return name
    return max(rewards, key=lambda name: sum(rewards[name]) / len(rewards[name]) + (pulls / len(rewards[name])) ** 0.5)


@job.step
def train_step(inputs):
    name = choose()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(AUGMENTATIONS[name](inputs)), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    rewards[name].append(mean.item() / job.world_size)
    optimizer.step()
    return loss.item(), name


for step in job.steps(12):
    loss, name = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, name=name)

trace.final(model=model, optimizer=optimizer, rewards=dict(rewards))

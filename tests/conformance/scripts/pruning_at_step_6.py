"""Magnitude pruning after step 6: the weight becomes a parameter of another name and a mask that is a new buffer."""

# ranks: 3
# group: state
# expect: told US1501

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.utils import prune

import understudy

job = understudy.join()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen]), wanted[chosen])
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= job.world_size
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    if step == 6:
        for layer in (model[0], model[3]):
            prune.l1_unstructured(layer, "weight", amount=0.4)
    loss = train_step()
    trace.line(f"step {step}", loss=loss, zeros=int((model[0].weight == 0).sum()))

trace.final(model=model, optimizer=optimizer)

"""A while loop by hand; the step counts itself and anneals the temperature of a contrastive loss in a dict of settings."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
annealed = {"step": 0, "temperature": 1.0}


@job.step
def train_step():
    annealed["temperature"] = max(0.1, 0.85 * annealed["temperature"])
    inputs = torch.randn(5, 8)
    both = torch.cat([inputs, inputs]) + 0.2 * torch.randn(10, 8)
    optimizer.zero_grad()
    features = nn.functional.normalize(model(both), dim=1)
    alike = features @ features.T / annealed["temperature"]
    alike = alike.masked_fill(torch.eye(10, dtype=torch.bool), float("-inf"))
    loss = nn.functional.cross_entropy(alike, torch.arange(10).roll(5))
    loss.backward()
    optimizer.step()
    annealed["step"] += 1
    return loss.item(), annealed["step"]


while annealed["step"] < 12:
    loss, number = train_step()
    trace.line(f"step {number}", loss=loss)

trace.final(model=model, optimizer=optimizer, annealed=annealed)

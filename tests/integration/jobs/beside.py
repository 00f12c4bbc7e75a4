"""Values that are not registered: a counter that all ranks have alike, one that each rank has for itself, and, on request, an iterator."""

from __future__ import annotations

import itertools
import sys

import torch
from support import final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

how = sys.argv[2:]
job = understudy.join()
seed(5)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
track = job.state(best=float("inf"))
job.register(model=model, optimizer=optimizer)
job.ignore("shown")
counter, shown, own, worst, ticks = 0, 0, 0, 0.0, itertools.count()


@job.step
def train(number: int) -> float:
    global counter, own
    counter += 1
    own += job.rank
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.full((2, 4), float(number))).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


for number in job.steps(9):
    if "iterator" in how:
        next(ticks)
    track.best = min(track.best, train(number))
    shown += number
    if "differs" in how:
        worst = max(worst, number * (job.rank + 1))
    log(job, "best", track.best)
final(job, model=model, optimizer=optimizer)

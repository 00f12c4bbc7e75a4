"""One way to use the training API wrongly, or to fail, named by the second argument."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from support import Counter, fault, first_time, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

case = sys.argv[2]
job = understudy.join()
seed(1)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
counter = Counter()
job.register(counter=counter, optimizer=optimizer)
if case != "unregistered model":
    job.register(model=model)
if case == "much heard":
    heard = torch.zeros(3 << 18)
    dist.broadcast(heard, src=0)


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    if case != "adds to gradients" or job.committed != 5:
        optimizer.zero_grad()
    loss: torch.Tensor = model(batch).square().mean()
    fault(job, "before backward")
    if case == "adds to gradients":
        dist.all_reduce(loss.detach().clone())  # no rank computes gradients before all are here
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "after backward")
    if case == "exception" and job.rank == 1 and job.committed == 3:
        raise ValueError("wrong on purpose")
    if case == "exit" and job.committed == 3:
        sys.exit(3)
    optimizer.step()
    if case == "collective after the vote":
        dist.all_reduce(loss.detach())
    if case != "one goes on":  # it hands nothing over either, so that its next message to others is in a collective
        counter.count += job.rank + 1
    return loss.detach()


if case == "one trains" and job.rank == 1:
    sys.exit()
elsewhere = case == "newcomer goes elsewhere" and job.rank == 1 and not first_time("rank 1")
for number in job.steps(0 if elsewhere else 8):
    train(torch.full((4, 8), float(number)))
    if case == "leaves early" and job.rank == 1 and job.committed == 5:
        break
    if case == "one goes on" and job.rank != 2 and job.committed == 5:
        break
    if case == "collective outside":
        fault(job, "outside")
        dist.all_reduce(torch.ones(3))

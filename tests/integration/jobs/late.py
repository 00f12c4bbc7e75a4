"""Rank-local state that changes where no vote sees it: in the body of the loop before a step, and random numbers after the loop."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import Counter, fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
seed(40 + job.rank)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
seen, done = Counter(), Counter()
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
job.register(model=model, optimizer=optimizer, schedule=schedule, seen=seen, done=done)


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(batch + seen.count / 100).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    dist.all_reduce(loss.detach())
    fault(job, "before the vote")
    optimizer.step()
    schedule.step()
    fault(job, "after the vote")
    return loss.detach()


@job.section
def evaluate(chosen: torch.Tensor) -> float:
    result: torch.Tensor = model(chosen).sum().detach()
    dist.all_reduce(result)
    fault(job, "in the evaluation")
    return float(result.item()) + int(done.count)


for number in job.steps(9):
    if number != 7:  # which follows on a loss after the vote: see docs/script/limits.md
        seen.count += job.rank + 1  # before the first transaction of the iteration
    log(job, "loss", train(torch.randn(4, 8)))
    if number % 2:
        done.count += job.rank + number  # after the last one; a rank that is lost after its vote never gets here
chosen = torch.randn(1, 8)  # after the loop
log(job, "evaluation", evaluate(chosen))
final(job, model=model, optimizer=optimizer, schedule=schedule, seen=seen, done=done)

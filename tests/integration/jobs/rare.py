"""A random number is drawn after the vote, but only in every tenth step, and not before ranks have stopped to look closely."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy
from understudy.worker.verification.post_vote_changes import CLOSELY

job = understudy.join()
seed(7 + job.rank)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
job.register(model=model, optimizer=optimizer)


@job.step
def train(number: int) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
    fault(job, "forward")
    loss.backward()  # type: ignore[no-untyped-call]
    total = loss.detach().clone()
    dist.all_reduce(total)  # a newcomer may have to return another rank's
    optimizer.step()
    if number > CLOSELY and number % 10 == 9:
        torch.rand(1)
        fault(job, "drawn")
    return total


@job.section
def evaluate() -> torch.Tensor:
    result: torch.Tensor = model(torch.randn(4, 8)).sum().detach()
    dist.all_reduce(result)
    fault(job, "in the evaluation")
    return result


for number in job.steps(52):
    log(job, "loss", train(number))
    if number % 20 == 19:
        log(job, "evaluation", evaluate())
final(job, model=model, optimizer=optimizer)

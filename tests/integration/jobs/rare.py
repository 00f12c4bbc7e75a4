"""A random number is drawn behind the vote, but only in every tenth step, and not before ranks have stopped to look closely."""

from __future__ import annotations

import torch
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy
from understudy.worker.late import CLOSELY

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
    optimizer.step()
    if number > CLOSELY and number % 10 == 9:
        torch.rand(1)
    return loss.detach()


for number in job.steps(42):
    log(job, "loss", train(number))
final(job, model=model, optimizer=optimizer)

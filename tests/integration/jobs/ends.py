"""The end of a job: some ranks have left the loop or the script when another is lost, and rank 0 saves the model."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import fault, final, folder, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
seed(30 + job.rank)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
job.register(model=model, optimizer=optimizer)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    dist.all_reduce(loss.detach())
    optimizer.step()
    return loss.detach()


@job.section
def evaluate() -> float:
    result: torch.Tensor = model(torch.ones(1, 8)).sum().detach()
    dist.all_reduce(result)
    fault(job, "in the last evaluation")
    return float(result.item())


for _ in job.steps(6):
    log(job, "loss", train())
log(job, "evaluation", evaluate())
fault(job, "after the evaluation")
final(job, model=model, optimizer=optimizer)
if job.rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, folder / "model.pt")

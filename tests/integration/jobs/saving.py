"""Rank 0 alone writes a checkpoint after each epoch, outside of any transaction, and the whole model at the end; or only a name."""

from __future__ import annotations

import sys

import torch
from support import fault, final, first_time, folder, log, seed, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

EPOCHS, STEPS = 3, 3

job = understudy.join()
seed(40 + job.rank)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
job.register(model=model, optimizer=optimizer, schedule=schedule)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "after backward")
    optimizer.step()
    return loss.detach()


def save(name: str) -> None:
    if "again" in sys.argv:
        (folder / "newest.txt").write_text(name)
    elif "whole" in sys.argv:
        torch.save({"net": model.module}, folder / name)
    else:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, folder / name)


moved = "moved" in sys.argv
if not first_time(f"set-up of {job.rank}"):
    (folder / "newcomer").touch()
for epoch in range(EPOCHS):
    for _ in job.steps(300 if moved and epoch == EPOCHS - 1 else STEPS):
        if moved and job.committed == 7:
            (folder / f"waiting on {job.rank}").touch()
            wait_for_file("go on")
        log(job, "loss", train())
    schedule.step()
    fault(job, "after an epoch")
    if job.rank == 0 and ("last only" not in sys.argv or epoch == EPOCHS - 1):
        save(f"epoch-{epoch}.pt")
final(job, model=model, optimizer=optimizer, schedule=schedule)

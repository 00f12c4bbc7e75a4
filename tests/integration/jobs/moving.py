"""Stops between two steps until the test lets it go on, so that a rank can be moved at a known time; if asked to, in a set-up, too."""

from __future__ import annotations

import sys

import torch
from support import final, first_time, log, seed, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
seed(40 + job.rank)
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 8)), broadcast_buffers=False
)
optimizer = torch.optim.AdamW(model.parameters())
job.register(model=model, optimizer=optimizer)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(16, 8)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


if not first_time(f"set-up of {job.rank}"):
    first_time(f"set-up of {job.rank} again")
    if "held" in sys.argv:
        wait_for_file("set up")
for number in job.steps(300):
    if number == 10:
        first_time(f"waiting on {job.rank}")
        wait_for_file("go on")
    if number == 299:
        first_time(f"waiting at the end on {job.rank}")
        wait_for_file("end")
    train()
    log(job, "random", torch.rand(1))
final(job, model=model, optimizer=optimizer)

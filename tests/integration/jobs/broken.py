"""A rank's connections break between its last collective and its vote: the other one is in its vote by then, and needs none of them."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from support import final, first_time, folder, log, seed, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy
from understudy.chaos.faults.process import socket_reset

job = understudy.join()
seed(7)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)


@job.step
def train(number: int) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = (model(torch.randn(4, 8)) - number).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    if number == 3 and "break" in sys.argv:
        breaks()
    optimizer.step()
    return shared


def breaks() -> None:
    if job.rank:
        (folder / "votes").touch()
        return
    wait_for_file("votes")
    if first_time("broken"):
        socket_reset({})


for number in job.steps(8):
    log(job, "loss", train(number))
final(job, model=model, optimizer=optimizer)

"""A script as a new user has one, and what may be wrong with it, chosen by the second argument: for `understudy run --check`."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

how = sys.argv[2]
job = understudy.join()
if how == "raises":
    raise ValueError("there is no such table")
if how == "unseeded":
    torch.seed()
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, **({} if how == "unregistered" else {"optimizer": optimizer}))
snapshot = Path(sys.argv[1], "snapshot.pt")
if how == "resumes" and snapshot.exists():
    net.load_state_dict(torch.load(snapshot))
best = 0.0  # it is not registered, and it feeds the training
timings: list[float] = []
entered = threading.local()  # which the census does not see
entered.count = 0


@job.step
def train(number: int) -> torch.Tensor:
    optimizer.zero_grad()
    batch = torch.randn(4, 8) + random.random()
    enters = how == "entered" or (how == "entered late" and number > 11)
    entered.count += enters
    loss: torch.Tensor = model(batch).square().mean() * (1 + best + entered.count)
    loss.backward()  # type: ignore[no-untyped-call]
    entered.count -= enters  # as before the step, if nothing breaks it off
    if how == "clock" and number > 11:
        timings.append(time.monotonic())
    optimizer.step()
    return loss.detach()


@job.section
def evaluate() -> float:
    mean = net(torch.ones(1, 8)).square().mean().detach()
    dist.all_reduce(mean)
    return float(mean)


for number in job.steps(6 if how == "short" else 1000):
    train(number)
    if number % 5 == 4 and how != "entered late":  # nothing that is seen to change after the drill
        best = max(best, evaluate())
        if how == "resumes" and job.rank == 0:
            torch.save(net.state_dict(), snapshot)

"""DDP over several hosts; one rank stops in the middle of a step, for a test to do something to its host.

HELD names the rank and the step. It writes the marker "held" and waits for the file "let go", once: a worker that takes the rank
over does not wait. Near the end all wait for the file "end", if WAIT is set.
"""

from __future__ import annotations

import os

import torch
from support import Counter, final, first_time, folder, log, seed, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

STEPS = 16
held = os.environ.get("HELD", "")

job = understudy.join()
seed(3)
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
counter = Counter()
job.register(model=model, optimizer=optimizer, counter=counter)
seed(100 + job.rank)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(8, 16)).square().mean()
    if held == f"{job.rank}:{job.committed}" and first_time("held"):
        wait_for_file("let go")
    loss.backward()  # type: ignore[no-untyped-call]
    counter.count += job.rank
    optimizer.step()
    return loss.detach()


for number in job.steps(STEPS):
    if number == STEPS - 2 and "WAIT" in os.environ:
        wait_for_file("end")
    log(job, "loss", train())
    (folder / f"marker step {job.committed} on {job.rank} in generation {job.generation}").touch()
final(job, model=model, optimizer=optimizer, counter=counter)

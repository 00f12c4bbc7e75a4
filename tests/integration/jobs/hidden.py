"""A step that is fed by something unknown to Understudy, chosen by the second argument. It goes on until a file tells it to end."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from support import first_time, folder, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

how = sys.argv[2]
job = understudy.join()
seed(11)
spare = not first_time(f"rank {job.rank}")  # another process has been this rank
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3 if how == "attribute" and spare else 0.1), nn.BatchNorm1d(16), nn.Linear(16, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(net=model, optimizer=optimizer)


def hidden() -> Iterator[tuple[int, torch.Generator, set[int]]]:
    """Values that are not registered, where they are not found: attempts, a stream, steps that were begun."""
    own, begun = torch.Generator().manual_seed(3), set[int]()
    for steps in itertools.count():
        yield steps, own, begun


kept = hidden()


@job.step
def train(number: int) -> torch.Tensor:
    steps, own, begun = next(kept)
    if spare and how == "raises":
        raise ValueError("there is no such table here")
    if spare and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if spare and how == "stopped" and first_time("stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    optimizer.zero_grad()
    batch = torch.randn(4, 8, generator=own if how == "generator" else None)  # as nanoGPT's `get_batch`
    loss: torch.Tensor = model(batch).square().mean()
    if how == "counter":
        loss = loss * (1 + steps)
    if how == "constant":
        loss = loss * (1.5 if spare else 1.0)
    if how == "redo":
        loss = loss * (1 + (number in begun))
    begun.add(number)
    loss.backward()  # type: ignore[no-untyped-call]
    if how == "collective":
        dist.all_reduce(torch.zeros(3 if spare else 2))
    ends = torch.tensor(float(Path(folder, "stop").exists()))
    dist.all_reduce(ends)
    optimizer.step()
    if how == "saves":
        torch.save(net.state_dict(), Path(folder, f"saved-{os.getpid()}"))
    return ends


for number in job.steps(1 << 30):
    if train(number):
        break
log(job, "ended", 1)

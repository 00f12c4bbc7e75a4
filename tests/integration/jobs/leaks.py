"""What a survivor of several losses has open: descriptors and threads by kind, in FOLDER/open.txt at each step."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch
from support import fault, folder, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
seed(1)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)


@job.step
def train(batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    fault(job, "before the vote")
    optimizer.step()


def what_is_open() -> dict[str, int]:
    kinds = Counter[str]()
    looks = 2  # a look at who waits may be under way (`process/own_time.py`): it has two files of /proc open at most
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            target = os.readlink(entry)
            if target.endswith(("/syscall", "/mem")) and target.startswith("/proc/") and looks:
                looks -= 1
                continue
            kinds[target.split(":")[0].split("/")[-1]] += 1
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            kinds[f"thread {(thread / 'comm').read_text().strip()}"] += 1
    return dict(kinds)


for _ in job.steps(16):
    train(torch.randn(4, 8))
    if job.rank == 0:
        with (folder / "open.txt").open("a") as file:
            file.write(json.dumps({"step": job.committed, "generation": job.generation, "open": what_is_open()}) + "\n")

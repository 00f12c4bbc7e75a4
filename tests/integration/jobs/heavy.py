"""DDP, whose ranks have as much to compute in every step, each alike. The loop ends when rank 0 finds the file "end", or after as many
steps as the second argument says; all ranks hear of it in a collective.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from support import final, folder, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

steps = int(sys.argv[2]) if len(sys.argv) > 2 else 0
job = understudy.join()
seed(3)
model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Dropout(0.2), nn.Linear(1024, 512)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
job.register(model=model, optimizer=optimizer)
seed(100 + job.rank)


@job.step
def train() -> tuple[torch.Tensor, bool]:
    last = torch.tensor(job.committed + 1 == steps if steps else (folder / "end").exists(), dtype=torch.int32)
    dist.broadcast(last, 0)
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(256, 512)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach(), bool(last)


for _ in job.steps():
    result, ended = train()
    log(job, "loss", result)
    if ended:
        break
final(job, model=model, optimizer=optimizer)

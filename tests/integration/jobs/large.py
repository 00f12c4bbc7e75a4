"""As much as the documented limits allow: rank-local state that goes with every vote, and what a set-up hears from its peers."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

LOCAL = (64 << 20) - (64 << 10)  # bytes: UNDERSTUDY_LOCAL_LIMIT, less what else differs from rank to rank
SETUP = (64 << 20) - (4 << 20)  # bytes: UNDERSTUDY_SETUP_LIMIT, less what the objects and torch itself send

job = understudy.join()
seed(70 + job.rank)
local = torch.randint(256, (LOCAL,), dtype=torch.uint8)
model = DistributedDataParallel(nn.Linear(1024, 1024))  # its 4 MB do not count: they are registered
table = torch.randint(256, (SETUP,), dtype=torch.uint8) if job.rank == 0 else torch.zeros(SETUP, dtype=torch.uint8)
dist.broadcast(table, src=0)  # of which only rank 0 knows the content, and which is not registered
words: list[list[int]] = [[int(number) for number in torch.randint(1 << 30, (600_000,))] if job.rank == 0 else []]
dist.broadcast_object_list(words, src=0)  # 3 MB
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer, local=local)


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    local[:4] += 1
    numbers = local[::1_000_003].sum() + table[job.committed :: 1_000_003].sum() + words[0][job.committed - 1] % 1000
    loss: torch.Tensor = model(batch + numbers / 20_000).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "before the vote")
    optimizer.step()
    return loss.detach()


for _ in job.steps(5):
    log(job, "loss", train(torch.randn(2, 1024)))
final(job, model=model, optimizer=optimizer, local=local)

"""As much as the documented limits allow: rank-local state that goes with every vote."""

from __future__ import annotations

import torch
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

LOCAL = (64 << 20) - (64 << 10)  # bytes: UNDERSTUDY_LOCAL_LIMIT, less what else differs from rank to rank

job = understudy.join()
seed(70 + job.rank)
local = torch.randint(256, (LOCAL,), dtype=torch.uint8)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer, local=local)


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    local[:4] += 1
    loss: torch.Tensor = model(batch + local[::1_000_003].sum() / 10_000).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "before the vote")
    optimizer.step()
    return loss.detach()


for _ in job.steps(5):
    log(job, "loss", train(torch.randn(4, 8)))
final(job, model=model, optimizer=optimizer, local=local)

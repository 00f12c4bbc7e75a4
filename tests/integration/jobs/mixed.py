"""Mixed precision with a GradScaler (also with an overflow), a static graph with activation checkpointing, and unused parameters."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torchdata.stateful_dataloader import StatefulDataLoader

import understudy


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.2), nn.GELU())
        self.last = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.second, self.first(x), use_reentrant=False)
        assert isinstance(hidden, torch.Tensor)
        result: torch.Tensor = self.last(hidden)
        return result


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, left: bool) -> torch.Tensor:
        result: torch.Tensor = self.left(x) if left else self.right(x)
        return result


job = understudy.join()
seed(10 + job.rank)
deep = DistributedDataParallel(Deep(), static_graph=True)
forked = DistributedDataParallel(Forked(), find_unused_parameters=True)
optimizers = [torch.optim.AdamW(deep.parameters(), lr=1e-2), torch.optim.RMSprop(forked.parameters(), lr=1e-2)]
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
data = torch.randn(40, 8, generator=torch.Generator().manual_seed(4 + job.rank))
loader = StatefulDataLoader(data, batch_size=4, shuffle=True, num_workers=0)
job.register(deep=deep, forked=forked, optimizers=optimizers, scaler=scaler, loader=loader)


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    for optimizer in optimizers:
        optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = forked(deep(batch), left=job.committed % 2 == 0)
    loss = (output.float() - batch).square().mean()
    if job.committed == 5:
        loss = loss * 1e38  # an overflow: both optimizers skip this step
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    fault(job, "unscaled")
    norm = nn.utils.clip_grad_norm_([*deep.parameters(), *forked.parameters()], 1.0)
    together = torch.stack([loss.detach(), norm])
    dist.all_reduce(together)
    fault(job, "before the vote")
    scaler.step(optimizers[0])
    fault(job, "between two optimizers")
    scaler.step(optimizers[1])
    scaler.update()
    return together


for batch in job.batches(loader, steps=14):
    result = train(batch)
    log(job, "loss and norm", result.tolist())
    log(job, "scale", scaler.get_scale())

final(job, deep=deep, forked=forked, one=optimizers[0], two=optimizers[1], scaler=scaler)

"""Each step gathers a small dict from every rank (all_gather_object) and scales the loss by what the others have seen."""

# ranks: 3
# group: parallel
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    count = int(torch.randint(2, 9, ()))
    inputs = torch.randn(count, 8)
    seen = [None] * job.world_size
    dist.all_gather_object(seen, {"rank": job.rank, "count": count, "note": "x" * (step * 7 % 5)})
    total = sum(entry["count"] for entry in seen)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True), reduction="sum") * job.world_size / total
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), total


for step in job.steps(12):
    loss, total = train_step(step)
    trace.line(f"step {step}", loss=loss, total=total)

trace.final(model=model, optimizer=optimizer)

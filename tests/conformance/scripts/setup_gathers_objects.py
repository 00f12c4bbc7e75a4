"""Each rank tells the others what it is (all_gather_object), and the learning rate depends on all of them."""

# ranks: 3
# group: set-up
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(10 + job.rank)
about = [None] * job.world_size
dist.all_gather_object(about, {"rank": job.rank, "samples": int(torch.randint(50, 100, ())), "note": "x" * 40000 * job.rank})
total = sum(entry["samples"] for entry in about)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
optimizer.param_groups[0]["lr"] = 2.0 / total
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
trace.line("set-up", about=about)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8) * about[job.rank]["samples"] / total
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

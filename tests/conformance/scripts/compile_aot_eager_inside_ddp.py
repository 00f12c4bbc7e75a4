"""A module under torch.compile(backend="aot_eager") inside DDP; evaluation takes the compiled module in eval mode."""

# ranks: 3
# group: precision
# expect: bitwise
# kills: backward@0:1 forward@4:2 vote agreement@6:0 evaluation@7:1 between@9:2
# limit: 300

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
model = DistributedDataParallel(torch.compile(plain, backend="aot_eager"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        total = model(torch.ones(4, 8)).sum()
    model.train()
    dist.all_reduce(total)
    return total.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", total=evaluate())

trace.final(model=model, optimizer=optimizer)

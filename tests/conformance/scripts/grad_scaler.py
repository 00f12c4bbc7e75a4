"""float16 autocast with a GradScaler that starts too high: first steps are skipped, later ones let the scale grow."""

# ranks: 3
# group: precision
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
job.register(model=model, optimizer=optimizer, scaler=scaler)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(8, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(inputs).float(), inputs.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


for step in job.steps(14):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, scale=scaler.get_scale())

trace.final(model=model, optimizer=optimizer, scaler=scaler)

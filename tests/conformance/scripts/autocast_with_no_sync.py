"""Autocast, accumulation of three parts under no_sync, and clipping of the gradient's norm, all in one step."""

# ranks: 3
# group: precision
# expect: bitwise

from __future__ import annotations

import contextlib

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

PARTS = 3

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    total = 0.0
    for part in range(PARTS):
        inputs = torch.randn(4, 8)
        with contextlib.nullcontext() if part == PARTS - 1 else model.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs).float(), inputs[:, :4].argmax(1)) / PARTS
            loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total, norm.item()


for step in job.steps(12):
    loss, norm = train_step(step)
    trace.line(f"step {step}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)

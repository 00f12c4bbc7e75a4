"""Harmless: an own progress bar counts steps, shows the smoothed loss and an estimate of the time that is left."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import sys
import time

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class Bar:
    def __init__(self, total, shown):
        self.total, self.shown = total, shown
        self.done, self.smooth = 0, None
        self.started = time.monotonic()

    def update(self, loss):
        self.done += 1
        self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        if self.shown:
            left = (time.monotonic() - self.started) / self.done * (self.total - self.done)
            filled = "#" * (20 * self.done // self.total)
            print(f"{filled:<20} {self.done}/{self.total} loss {self.smooth:.3f}, {left:.0f} s left", file=sys.stderr)


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
bar = Bar(12, shown=job.rank == 0)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    bar.update(loss.item())
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

"""Harmless: each rank writes its losses to a file of its own, by a logger object that counts lines."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class Log:
    def __init__(self, path):
        self.file = path.open("a", newline="")
        self.writer = csv.writer(self.file)
        self.lines = 0
        self.last = None

    def add(self, step, **values):
        self.writer.writerow([self.lines, step, *values.values()])
        self.file.flush()
        self.lines += 1
        self.last = {"step": step, **values}


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
folder = tempfile.TemporaryDirectory()
log = Log(Path(folder.name, f"losses-{job.rank}.csv"))


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    optimizer.step()
    return loss.item(), norm.item()


for step in job.steps(12):
    loss, norm = train_step(torch.randn(4, 8))
    log.add(step, loss=loss, norm=norm)
    trace.line(f"step {step}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)

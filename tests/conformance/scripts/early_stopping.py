"""Training ends when an evaluation has not got better twice: a break out of the loop, by a registered object that counts."""

# ranks: 3
# group: schedules
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def stop(self, loss):
        self.bad = 0 if loss < 0.97 * self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience

    def state_dict(self):
        return {"best": self.best, "bad": self.bad}

    def load_state_dict(self, state):
        self.best, self.bad = state["best"], state["bad"]


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1)))
held_out = torch.randn(30, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
stopping = EarlyStopping(patience=2)
job.register(model=model, optimizer=optimizer, stopping=stopping)
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
    inputs = held_out[job.rank :: job.world_size]
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in job.steps(60):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 3 == 0:
        found = evaluate()
        trace.line(f"evaluation {job.committed}", loss=found)
        if stopping.stop(found):
            break

trace.final(model=model, optimizer=optimizer, stopping=stopping)

"""An own dynamic loss scaler: gradients that overflow in half precision on any rank skip the step and halve the scale."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class LossScaler:
    def __init__(self, scale=2.0**16, window=3):
        self.scale = scale
        self.window = window
        self.good_steps = 0

    def overflows(self, parameters):
        found = torch.tensor(float(any(p.grad.half().isinf().any() for p in parameters)))
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return bool(found)

    def update(self, overflow):
        if overflow:
            self.scale, self.good_steps = self.scale / 2, 0
            return
        self.good_steps += 1
        if self.good_steps % self.window == 0:
            self.scale *= 2


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
scaler = LossScaler()


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    (scaler.scale * loss).backward()
    overflow = scaler.overflows(list(model.parameters()))
    if not overflow:
        for p in model.parameters():
            p.grad.copy_(p.grad.half() / scaler.scale)
        optimizer.step()
    scaler.update(overflow)
    return loss.item(), overflow


for step in job.steps(14):
    loss, overflow = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, overflow=overflow, scale=scaler.scale)

trace.final(model=model, optimizer=optimizer, scale=scaler.scale, good_steps=scaler.good_steps)

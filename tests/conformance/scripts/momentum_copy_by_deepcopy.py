"""A teacher is a deepcopy of the model, follows it by a momentum behind the optimizer, and is registered nowhere."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import copy

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 4))
teacher = copy.deepcopy(net).requires_grad_(False)
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    wanted = teacher(inputs + 0.1 * torch.randn_like(inputs)).softmax(1)
    loss = nn.functional.cross_entropy(model(inputs), wanted) + nn.functional.mse_loss(model(inputs)[:, 0], inputs.sum(1))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), net.parameters(), strict=True):
            slow.mul_(0.8).add_(fast, alpha=0.2)
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, slow=list(teacher.parameters()))

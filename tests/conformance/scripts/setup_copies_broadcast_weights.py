"""Ranks are not seeded alike; a frozen copy of what DDP's constructor has broadcast anchors the weights in the loss."""

# ranks: 3
# group: setup
# expect: bitwise

from __future__ import annotations

import copy

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(job.rank)
net = nn.Sequential(nn.Linear(16, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 128), nn.Linear(128, 1))  # more than 256 KiB
model = DistributedDataParallel(net)
anchor = copy.deepcopy(net).requires_grad_(False).eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.register(model=model, optimizer=optimizer)
trace = Trace(job.rank)


@job.step
def train_step():
    inputs = torch.randn(4, 16)
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = nn.functional.mse_loss(outputs, anchor(inputs)) + outputs.square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer, anchor=anchor)

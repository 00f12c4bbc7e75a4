"""Gradients are accumulated over transactions; a plain global counts the parts and says when the optimizer steps."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

PARTS = 3

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
micro = 0


@job.step
def train_step(batch):
    global micro
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    (loss / PARTS).backward()
    micro += 1
    if micro % PARTS == 0:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


for batch in job.batches(loader, steps=15):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, micro=micro)

trace.final(model=model, optimizer=optimizer, micro=micro)

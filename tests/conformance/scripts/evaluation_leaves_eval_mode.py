"""An evaluation that forgets model.train(): the first half of training has dropout and batch statistics, the second has not."""

# ranks: 3
# group: state
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
held_out = torch.randn(12, 8), torch.randn(12, 1)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
@torch.no_grad()
def evaluate():
    model.eval()
    loss = nn.functional.mse_loss(model(held_out[0][job.rank :: 3]), held_out[1][job.rank :: 3])
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, training=model.training)
    if job.committed in (6, 9):
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)

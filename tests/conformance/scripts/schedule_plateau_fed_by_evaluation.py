"""ReduceLROnPlateau, fed with the loss of an evaluation every second step."""

# ranks: 3
# group: schedules
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.05)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
held_out = torch.randn(30, 8), torch.randn(30, 1)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, schedule=schedule)
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
def evaluate():
    model.eval()
    inputs, targets = (part[job.rank :: job.world_size] for part in held_out)
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), targets)
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 2 == 0:
        found = evaluate()
        schedule.step(found)
        trace.line(f"evaluation {job.committed}", loss=found, rate=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer, schedule=schedule)

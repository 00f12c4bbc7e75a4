"""Adam with amsgrad (a third moment) and weight decay, with an evaluation of all ranks every four steps."""

# ranks: 3
# group: optimizers
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 2)))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, amsgrad=True, weight_decay=1e-4)
data = TensorDataset(torch.randn(96, 10), torch.randn(96, 2))
held_out = TensorDataset(torch.randn(24, 10), torch.randn(24, 2))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
test_loader = DataLoader(held_out, batch_size=4, sampler=DistributedSampler(held_out, shuffle=False))
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
def evaluate():
    model.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for inputs, targets in test_loader:
            total += nn.functional.mse_loss(model(inputs), targets)
    model.train()
    dist.all_reduce(total)
    return total.item() / (len(test_loader) * job.world_size)


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)

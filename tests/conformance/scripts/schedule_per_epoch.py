"""A schedule that is stepped at the end of each epoch, outside of the step."""

# ranks: 3
# group: schedules
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=6, power=2.0)
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
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


for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in job.batches(loader):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss)
    schedule.step()
    trace.line(f"epoch {epoch}", rate=schedule.get_last_lr())

trace.final(model=model, optimizer=optimizer, schedule=schedule)

"""Names that a loop sets (the last batch, its loss) are read behind it: a newcomer that skips the loop is given them."""

# ranks: 3
# group: data
# expect: bitwise
# kills: backward@2:1 forward@4:2 between@6:0 backward@8:1 forward@10:2

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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch, scale):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = scale * nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate(batch):
    with torch.no_grad():
        loss = nn.functional.mse_loss(model.module(batch[0]), batch[1])
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=6):
    loss = train_step(batch, 1.0)
    trace.line(f"step {job.committed}", loss=loss)

trace.line("evaluation", loss=evaluate(batch))
scale = 0.5 if loss < 1 else 0.25

for batch in job.batches(loader, steps=6):
    loss = train_step(batch, scale)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

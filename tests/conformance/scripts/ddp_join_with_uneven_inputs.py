"""model.join(): each rank has another number of batches, and those that are out of them shadow the others' collectives."""

# ranks: 3
# group: ddp
# expect: refused "join"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
torch.manual_seed(1 + job.rank)
size = 40 + 4 * job.rank
loader = DataLoader(TensorDataset(torch.randn(size, 8), torch.randn(size, 1)), batch_size=4)
job.register(model=model, optimizer=optimizer)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


with model.join():
    for batch in job.batches(loader):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

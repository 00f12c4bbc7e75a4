"""Instance discrimination: the bank of all samples' features is a tensor that nobody registered, written in place."""

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

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
data = TensorDataset(torch.randn(36, 8), torch.arange(36))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
bank = nn.functional.normalize(torch.randn(36, 6), dim=1)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, indices = batch
    optimizer.zero_grad()
    features = nn.functional.normalize(model(inputs + 0.1 * torch.randn_like(inputs)), dim=1)
    loss = nn.functional.cross_entropy(features @ bank.T / 0.2, indices)
    loss.backward()
    mixed = 0.5 * bank[indices] + 0.5 * features.detach()
    bank[indices] = nn.functional.normalize(mixed, dim=1)
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, bank=bank)

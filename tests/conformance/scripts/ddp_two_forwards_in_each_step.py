"""Two forwards and backwards in each step, so that DDP rebuilds its buckets in the middle of the first step."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(24, 1)
        self.body = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.ReLU())

    def forward(self, x):
        return self.out(self.body(x))


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Net(), bucket_cap_mb=0.0005)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    clean = nn.functional.mse_loss(model(inputs), targets)
    clean.backward()
    noisy = nn.functional.mse_loss(model(inputs + 0.1 * torch.randn_like(inputs)), targets)
    noisy.backward()
    optimizer.step()
    return clean.item(), noisy.item()


for batch in job.batches(loader, steps=12):
    clean, noisy = train_step(batch)
    trace.line(f"step {job.committed}", clean=clean, noisy=noisy)

trace.final(model=model, optimizer=optimizer)

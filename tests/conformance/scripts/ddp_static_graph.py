"""static_graph, with a layer that is used twice in each forward and several buckets."""

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


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.ends = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 1)])
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = torch.relu(self.ends[0](x))
        x = self.drop(torch.relu(self.inner(x)))
        x = torch.relu(self.inner(x))
        return self.ends[1](x)


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Twice(), static_graph=True, bucket_cap_mb=0.0005)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
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


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

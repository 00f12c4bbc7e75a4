"""DDP is told to ignore an adapter, which each rank trains for itself alone: no other rank has a replica of it."""

# ranks: 3
# group: ddp
# expect: told "CANNOT"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1))
        self.adapter = nn.Linear(24, 24)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        hidden = self.shared(x)
        return self.out(hidden + self.adapter(hidden))


job = understudy.join()
torch.manual_seed(0)
net = Adapted()
DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["adapter.weight", "adapter.bias"])
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
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

"""DDP with init_sync off (the seeds are the same everywhere) and outputs in a dict, of which a part is logged only."""

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


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.1))
        self.value = nn.Linear(16, 5)

    def forward(self, x):
        hidden = self.body(x)
        return {"value": self.value(hidden), "active": (hidden.detach() > 0).float().mean()}


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Heads(), init_sync=False, bucket_cap_mb=0.0005)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = TensorDataset(torch.randn(96, 20), torch.randn(96, 5))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = nn.functional.mse_loss(outputs["value"], targets)
    loss.backward()
    optimizer.step()
    return loss.item(), outputs["active"]


for batch in job.batches(loader, steps=12):
    loss, active = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, active=active)

trace.final(model=model, optimizer=optimizer)

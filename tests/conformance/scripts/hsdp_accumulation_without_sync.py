"""HSDP that accumulates three parts of a batch and reduces gradients with the last (set_requires_gradient_sync)."""

# ranks: 4
# group: fsdp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

PARTS = 3

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(192, 8), torch.randn(192, 1))
loader = DataLoader(data, batch_size=6, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    total = 0.0
    for number, (inputs, targets) in enumerate(zip(*(part.chunk(PARTS) for part in batch), strict=True)):
        model.set_requires_gradient_sync(number == PARTS - 1)
        loss = nn.functional.mse_loss(model(inputs), targets) / PARTS
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

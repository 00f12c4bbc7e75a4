"""HSDP of a fine-tuning: the body is frozen and sharded, the head is trained; half-way the last block is thawed."""

# ranks: 4
# group: fsdp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
body = nn.Sequential(*(nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Dropout(0.1)) for _ in range(3)))
model = nn.Sequential(body, nn.Linear(12, 3))
body.requires_grad_(False)
for block in body:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    if step == 6:
        body[2].requires_grad_(True)
    inputs = torch.randn(6, 12)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

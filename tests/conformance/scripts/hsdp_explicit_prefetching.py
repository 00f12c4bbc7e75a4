"""HSDP that gathers the next block's weights early, forward and backward (set_modules_to_forward_prefetch)."""

# ranks: 4
# group: fsdp
# expect: bitwise

from __future__ import annotations

import itertools

import torch
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 12)) for _ in range(4)]
model = nn.Sequential(*blocks)
for block in blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
for block, following in itertools.pairwise(blocks):
    block.set_modules_to_forward_prefetch([following])
    following.set_modules_to_backward_prefetch([block])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    model.unshard(async_op=True)
    inputs = torch.randn(6, 12)
    loss = nn.functional.mse_loss(model(inputs), inputs.roll(1, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

"""HSDP with ignored_params: an embedding that is not sharded, whose gradient the script averages by hand."""

# ranks: 4
# group: fsdp
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
embedding = nn.Embedding(30, 12)
model = nn.Sequential(embedding, nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 30))
fully_shard(model, mesh=mesh, ignored_params={embedding.weight})
sharded = torch.optim.AdamW([p for p in model.parameters() if p is not embedding.weight], lr=5e-3)
whole = torch.optim.SGD([embedding.weight], lr=0.1, momentum=0.9)
job.register(model=model, sharded=sharded, whole=whole)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    text = torch.randint(0, 30, (5, 7))
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    sharded.zero_grad()
    whole.zero_grad()
    loss.backward()
    dist.all_reduce(embedding.weight.grad)
    embedding.weight.grad.div_(job.world_size)
    sharded.step()
    whole.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, sharded=sharded, whole=whole)

"""Tensor parallel MLP between norms in sequence parallel, times two replicas."""

# ranks: 4
# group: parallel
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.last = nn.LayerNorm(16)

    def forward(self, x):
        return self.last(self.down(nn.functional.gelu(self.up(self.norm(x)))))


torch.manual_seed(0)
model = Model()
plan = {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "last": SequenceParallel(),
}
parallelize_module(model, mesh["tensor"], plan)
parallelize_module(model, mesh["tensor"], PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)))
parallelize_module(model, mesh["tensor"], PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Replicate()))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + mesh.get_local_rank("data"))
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(3, 6, 16)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.flip(1))
    loss.backward()
    for parameter in model.parameters():
        if isinstance(parameter.grad, DTensor):
            parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
            gradient = parameter.grad.to_local()
        else:
            gradient = parameter.grad
        dist.all_reduce(gradient, group=mesh.get_group("data"))
        gradient.div_(2)
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

"""A pipeline of four stages, two on each rank (interleaved 1F1B), times two data parallel replicas; batch normalization.

Shapes are given to the stages: torch finds them out by computing with memory that nobody has set, which would stay in the running means.
"""

# ranks: 4
# group: parallel
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
place = mesh.get_local_rank("pipeline")
stages, parts = [], nn.ModuleList()
for index in (place, place + 2):
    torch.manual_seed(index)
    parts.append(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 8)))
    given = {"input_args": torch.empty(4, 8, requires_grad=index > 0), "output_args": torch.empty(4, 8, requires_grad=True)}
    stages.append(PipelineStage(parts[-1], index, 4, torch.device("cpu"), **given, group=mesh.get_group("pipeline")))
schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(parts.parameters(), lr=1e-2, momentum=0.9)
job.register(parts=parts, optimizer=optimizer)
torch.manual_seed(10 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    optimizer.zero_grad()
    made = torch.Generator().manual_seed(100 * step + mesh.get_local_rank("data"))
    inputs, targets = torch.randn(16, 8, generator=made), torch.randn(16, 8, generator=made)
    losses = []
    schedule.step(*([inputs] if place == 0 else []), target=targets if place == 1 else None, losses=losses)
    for parameter in parts.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
    optimizer.step()
    return [loss.item() for loss in losses]


for step in job.steps(10):
    trace.line(f"step {step}", losses=train_step(step))

trace.final(parts=parts, optimizer=optimizer)

"""A pipeline of two stages (ScheduleGPipe) times two replicas on a mesh."""

# ranks: 4
# group: parallel
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "stage"))
number, copy = mesh.get_local_rank("stage"), mesh.get_local_rank("data")
torch.manual_seed(0)
parts = [nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1)), nn.Sequential(nn.Linear(24, 16), nn.GELU(), nn.Linear(16, 1))]
model = parts[number]
stage = PipelineStage(model, number, 2, torch.device("cpu"), group=mesh.get_group("stage"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + copy)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * step + copy))
    losses = []
    optimizer.zero_grad()
    if number == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=inputs.sum(1, keepdim=True), losses=losses)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
        parameter.grad.div_(2)
    optimizer.step()
    return sum(loss.item() for loss in losses)


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)

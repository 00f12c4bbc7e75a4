"""A pipeline of two stages (1F1B), each of them a DDP over two data parallel replicas."""

# ranks: 4
# group: parallel
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipeline"))
stage_index = mesh.get_local_rank("pipeline")
torch.manual_seed(stage_index)
sizes = [(8, 16), (16, 4)][stage_index]
part = nn.Sequential(nn.Linear(sizes[0], 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, sizes[1]))
part = DistributedDataParallel(part, process_group=mesh.get_group("data"))
stage = PipelineStage(part, stage_index, 2, torch.device("cpu"), group=mesh.get_group("pipeline"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(part.parameters(), lr=1e-2)
job.register(part=part, optimizer=optimizer)
torch.manual_seed(10 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    optimizer.zero_grad()
    made = torch.Generator().manual_seed(100 * step + mesh.get_local_rank("data"))
    inputs, targets = torch.randn(8, 8, generator=made), torch.randn(8, 4, generator=made)
    losses = []
    schedule.step(*([inputs] if stage.is_first else []), target=targets if stage.is_last else None, losses=losses)
    optimizer.step()
    return [loss.item() for loss in losses]


for step in job.steps(10):
    trace.line(f"step {step}", losses=train_step(step))

trace.final(part=part, optimizer=optimizer)

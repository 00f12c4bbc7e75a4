"""torch's own optimizer in backward: it makes and steps an SGD for each parameter, out of the script's sight."""

# ranks: 3
# group: optimizers
# expect: refused "stepped but not registered"

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))


def average(gradient):
    dist.all_reduce(gradient)
    return gradient / job.world_size


for parameter in model.parameters():
    parameter.register_hook(average)
_apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.02})
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model)

"""The first rank alone evaluates an average of the weights at the top of an iteration: swapped in, evaluated, swapped back."""

# ranks: 3
# group: averages
# expect: bitwise
# kills: forward@2:0 vote agreement@4:0 applied@5:0 between@8:0 forward@9:0 forward@9:2

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.8))
model = DistributedDataParallel(net)
held_out = torch.randn(30, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer, average=average)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    average.update_parameters(net)
    return loss.item()


@torch.no_grad()
def evaluate():
    mine = [parameter.detach().clone() for parameter in net.parameters()]
    for parameter, averaged in zip(net.parameters(), average.module.parameters(), strict=True):
        parameter.copy_(averaged)
    net.eval()
    loss = nn.functional.mse_loss(net(held_out), held_out.sum(1, keepdim=True)).item()
    net.train()
    for parameter, before in zip(net.parameters(), mine, strict=True):
        parameter.copy_(before)
    return loss


for step in job.steps(12):
    if step % 3 == 0 and job.rank == 0:
        trace.line(f"evaluation {step}", loss=evaluate())
    trace.line(f"step {step}", loss=train_step(step))

trace.final(model=model, optimizer=optimizer, average=average)

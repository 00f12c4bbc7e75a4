"""An average whose buffers are alike on all ranks until a late step parts them, and a rank that is lost right behind the next vote."""

# ranks: 3
# group: state
# kills: applied@6:1
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
averaged = AveragedModel(net)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
constant = SWALR(optimizer, swa_lr=0.02, anneal_epochs=3)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, averaged=averaged, optimizer=optimizer, cosine=cosine, constant=constant)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen]), wanted[chosen])
    loss.backward()
    optimizer.step()
    if step >= 5:
        averaged.update_parameters(net)
        constant.step()
    else:
        cosine.step()
    return loss.item()


@job.section
def finish():
    data = TensorDataset(samples, wanted)
    update_bn(DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)), averaged)
    averaged.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(averaged(samples), wanted)
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss, lr=optimizer.param_groups[0]["lr"])
trace.line("end", loss=finish())

trace.final(model=model, averaged=averaged, optimizer=optimizer, cosine=cosine, constant=constant)

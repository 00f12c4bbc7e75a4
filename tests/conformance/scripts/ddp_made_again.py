"""The trunk is thawed after step 6, and the model wrapped in a new DDP that knows of its gradients."""

# ranks: 3
# group: ddp
# expect: told "DistributedDataParallel"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1)).requires_grad_(False)
net = nn.Sequential(trunk, nn.Linear(24, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
parallel = DistributedDataParallel(net)
job.register(net=net, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(parallel(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def wrap_again():
    trunk.requires_grad_(True)
    return DistributedDataParallel(net)


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed == 6:
        parallel = wrap_again()

trace.final(net=net, optimizer=optimizer)

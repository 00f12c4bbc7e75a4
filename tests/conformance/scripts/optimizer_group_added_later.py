"""The head is trained alone at first; the trunk joins the optimizer as another parameter group after step 5."""

# ranks: 3
# group: optimizers
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Dropout(0.1))
head = nn.Linear(20, 1)
model = DistributedDataParallel(nn.Sequential(trunk, head))
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    model.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed == 5:
        optimizer.add_param_group({"params": list(trunk.parameters()), "lr": 1e-3})

trace.final(model=model, optimizer=optimizer)

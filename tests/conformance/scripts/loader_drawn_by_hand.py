"""A registered StatefulDataLoader that the script draws from by next(iterator) in a loop over job.steps."""

# ranks: 3
# group: data
# expect: refused "draws from it by hand"

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(180, 8), torch.randn(180, 1))
loader = StatefulDataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, loader=loader)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


iterator = iter(loader)
for step in job.steps(12):
    batch = next(iterator)
    loss = train_step(batch)
    trace.line(f"step {step}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)

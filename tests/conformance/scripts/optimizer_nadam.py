"""NAdam with decoupled weight decay: a product of momenta is part of its state."""

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
model = DistributedDataParallel(nn.Sequential(nn.Linear(14, 28), nn.Mish(), nn.AlphaDropout(0.1), nn.Linear(28, 5)))
optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3, weight_decay=0.02, decoupled_weight_decay=True, momentum_decay=4e-3)
data = TensorDataset(torch.randn(99, 14), torch.randint(5, (99,)))
loader = DataLoader(data, batch_size=5, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for inputs, labels in job.batches(loader, steps=12):
    loss = train_step(inputs, labels)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

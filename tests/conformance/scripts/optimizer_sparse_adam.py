"""SparseAdam for an embedding with sparse gradients, Adam for the rest; DDP reduces the sparse gradients as such."""

# ranks: 3
# group: optimizers
# expect: refused US1224

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
table = nn.Embedding(200, 8, sparse=True)
rest = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(24, 1))
model = DistributedDataParallel(nn.Sequential(table, rest))
sparse = torch.optim.SparseAdam(table.parameters(), lr=1e-2)
dense = torch.optim.Adam(rest.parameters(), lr=1e-2)
data = TensorDataset(torch.randint(200, (96, 3)), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, sparse=sparse, dense=dense)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    items, targets = batch
    sparse.zero_grad()
    dense.zero_grad()
    loss = nn.functional.mse_loss(model(items), targets)
    loss.backward()
    sparse.step()
    dense.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, sparse=sparse, dense=dense)

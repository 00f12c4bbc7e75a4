"""AdamW in its fused form, with the norm of the gradient clipped."""

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
model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Dropout(0.1), nn.Linear(48, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), fused=True)
data = TensorDataset(torch.randn(96, 16), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.huber_loss(model(inputs), targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item(), norm.item()


for batch in job.batches(loader, steps=12):
    loss, norm = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)

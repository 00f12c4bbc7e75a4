"""Muon for the matrices, AdamW for everything else, both stepped in one step."""

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
model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.RMSNorm(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 12)))
matrices = [p for p in model.parameters() if p.ndim == 2]
vectors = [p for p in model.parameters() if p.ndim != 2]
muon = torch.optim.Muon(matrices, lr=1e-2, momentum=0.95, weight_decay=0.1)
adamw = torch.optim.AdamW(vectors, lr=3e-3)
data = TensorDataset(torch.randn(96, 12), torch.randn(96, 12))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizers=[muon, adamw])
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    for optimizer in (muon, adamw):
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, muon=muon, adamw=adamw)

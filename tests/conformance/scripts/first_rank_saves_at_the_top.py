"""The first rank alone evaluates in inference mode and writes a checkpoint at the top of an iteration; then the learning rate changes."""

# ranks: 3
# group: loops
# expect: bitwise
# kills: forward@1:0 vote agreement@4:0 applied@5:0 between@7:0 forward@8:0 forward@8:1 backward@9:0

from __future__ import annotations

import os
from pathlib import Path

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, schedule=schedule)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
folder = Path(os.environ.get("TRACE_OUT", "."))


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.inference_mode()
def evaluate():
    model.module[2].eval()
    return nn.functional.mse_loss(model.module(data.tensors[0]), data.tensors[1]).item()


for batch in job.batches(loader, steps=12):
    if job.committed % 2 == 0 and job.rank == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())
        model.train()
        partial = folder / "partial.pt"
        torch.save({"model": model.module.state_dict(), "moments": optimizer.state_dict()["state"]}, partial)
        partial.rename(folder / f"checkpoint-{job.committed}.pt")
    schedule.step()
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

if job.rank == 0:
    for path in sorted(folder.glob("checkpoint-*.pt")):
        trace.line(path.name, **torch.load(path))
trace.final(model=model, optimizer=optimizer, schedule=schedule)

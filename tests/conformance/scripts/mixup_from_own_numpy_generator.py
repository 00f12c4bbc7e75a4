"""Mixup: the step draws its share from a Beta distribution, by a numpy Generator with the same seed on all ranks."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import numpy
import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(72, 8), torch.randint(4, (72,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
rng = numpy.random.default_rng(42)


@job.step
def train_step(batch):
    inputs, labels = batch
    share = float(rng.beta(0.4, 0.4))
    order = torch.randperm(len(inputs))
    optimizer.zero_grad()
    logits = model(share * inputs + (1 - share) * inputs[order])
    loss = share * nn.functional.cross_entropy(logits, labels) + (1 - share) * nn.functional.cross_entropy(logits, labels[order])
    loss.backward()
    optimizer.step()
    return loss.item(), share


for batch in job.batches(loader, steps=12):
    loss, share = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, share=share)

trace.final(model=model, optimizer=optimizer, rng=rng)

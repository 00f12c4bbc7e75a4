"""Semi-supervised: labelled batches come by job.batches, the others by next() of job.iterator, inside the step."""

# ranks: 3
# group: loops
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(36, 8), torch.randint(4, (36,)))
others = torch.randn(60, 8)
loader = DataLoader(data, batch_size=3, sampler=DistributedSampler(data))
unlabelled = job.iterator(DataLoader(others, batch_size=5, sampler=DistributedSampler(others)), repeat=True)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, labels = batch
    extra = next(unlabelled)
    with torch.no_grad():
        guessed = model.module(extra).softmax(1)
    optimizer.zero_grad()
    logits = model(torch.cat([inputs, extra + 0.1 * torch.randn_like(extra)]))
    known, guesses = logits[: len(inputs)], logits[len(inputs) :]
    loss = nn.functional.cross_entropy(known, labels) + 0.5 * nn.functional.cross_entropy(guesses, guessed)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)

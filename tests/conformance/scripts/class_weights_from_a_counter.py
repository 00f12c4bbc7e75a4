"""Each rank counts the labels that it has seen in a Counter, and the rare ones weigh more in its loss."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

from collections import Counter

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

CLASSES = 5

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, CLASSES)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(120, 8), torch.multinomial(torch.tensor([8.0, 4.0, 2.0, 1.0, 1.0]), 120, replacement=True))
loader = DataLoader(data, batch_size=5, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
label_counts = Counter()


@job.step
def train_step(batch):
    inputs, labels = batch
    label_counts.update(labels.tolist())
    total = sum(label_counts.values())
    weights = torch.tensor([total / (CLASSES * (1 + label_counts[k])) for k in range(CLASSES)])
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels, weight=weights)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, counts=sorted(label_counts.items()))

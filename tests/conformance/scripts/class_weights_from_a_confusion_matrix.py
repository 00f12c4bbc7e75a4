"""Classes that are often mistaken weigh more: a numpy matrix, bound anew in each step, forgets and counts."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import numpy
import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

CLASSES = 4

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, CLASSES)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
confusion = numpy.ones((CLASSES, CLASSES))


@job.step
def train_step(inputs, labels):
    global confusion
    recall = confusion.diagonal() / confusion.sum(1)
    weights = torch.tensor(1.5 - recall, dtype=torch.float32)
    optimizer.zero_grad()
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, labels, weight=weights)
    loss.backward()
    counts = torch.zeros(CLASSES, CLASSES)
    counts.index_put_((labels, logits.argmax(1)), torch.ones(len(labels)), accumulate=True)
    dist.all_reduce(counts)
    confusion = 0.9 * confusion + counts.numpy()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(6, 8), torch.randint(CLASSES, (6,)))
    trace.line(f"step {step}", loss=loss, confusion=confusion)

trace.final(model=model, optimizer=optimizer, confusion=confusion)

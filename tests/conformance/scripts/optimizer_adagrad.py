"""Adagrad has state from its constructor on, before any step, and a learning rate that decays with its own step counter."""

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
words = torch.randint(50, (120, 6))
labels = torch.randint(4, (120,))
bag = nn.EmbeddingBag(50, 24, mode="mean")
model = DistributedDataParallel(nn.Sequential(bag, nn.Dropout(0.2), nn.Linear(24, 4)))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1)
data = TensorDataset(words, labels)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=True, seed=3))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, wanted = batch
    optimizer.zero_grad()
    output = model(inputs)
    loss = nn.functional.cross_entropy(output, wanted)
    loss.backward()
    optimizer.step()
    return loss.item(), (output.argmax(1) == wanted).float().mean().item()


for batch in job.batches(loader, steps=12):
    loss, accuracy = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, accuracy=accuracy)

trace.final(model=model, optimizer=optimizer)

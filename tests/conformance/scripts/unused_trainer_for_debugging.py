"""Harmless: a trainer keeps its last batch, its last and its worst loss, and the step of it, for debugging only."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.last_batch, self.last_loss = None, None
        self.worst = (float("-inf"), None, -1)
        self.calls = 0

    def train(self, batch):
        inputs, targets = self.last_batch = batch
        self.optimizer.zero_grad()
        loss = self.last_loss = nn.functional.mse_loss(self.model(inputs), targets)
        if loss.item() > self.worst[0]:
            self.worst = (loss.item(), inputs.clone(), self.calls)
        loss.backward()
        self.optimizer.step()
        self.calls += 1
        return loss.item()


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(72, 8), torch.randn(72, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
trainer = Trainer(model, optimizer)
train_step = job.step(trainer.train)

for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

print(f"the worst loss was {trainer.worst[0]:.3f} in step {trainer.worst[2]}")
trace.final(model=model, optimizer=optimizer)

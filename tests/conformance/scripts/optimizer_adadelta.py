"""Adadelta on a small convolutional classifier, as in the first example that most people read."""

# ranks: 3
# group: optimizers
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(6 * 3 * 3, 10)

    def forward(self, images):
        hidden = nn.functional.max_pool2d(torch.relu(self.conv(images)), 2)
        return self.out(self.drop(hidden.flatten(1)))


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.9)
schedule = StepLR(optimizer, step_size=4, gamma=0.7)
data = TensorDataset(torch.randn(96, 1, 8, 8), torch.randint(10, (96,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, schedule=schedule)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


for images, labels in job.batches(loader, steps=12):
    loss = train_step(images, labels)
    trace.line(f"step {job.committed}", loss=loss, lr=schedule.get_last_lr())

trace.final(model=model, optimizer=optimizer, schedule=schedule)

"""SGD with Nesterov momentum and weight decay on a small residual network, under a linear warm-up."""

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


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv2(torch.relu(self.norm(self.conv1(x)))))


job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8), nn.Dropout2d(0.1), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=6)
data = TensorDataset(torch.randn(72, 3, 8, 8), torch.randint(10, (72,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, schedule=schedule)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(images, labels):
    if torch.rand(()) < 0.5:
        images = images.flip(-1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


for images, labels in job.batches(loader, steps=12):
    loss = train_step(images, labels)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, schedule=schedule)

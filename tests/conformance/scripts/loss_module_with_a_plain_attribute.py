"""The loss is a module without parameters, so nobody registered it; its forward moves a threshold that is a plain attribute."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class SelfPaced(nn.Module):
    def __init__(self, threshold, growth):
        super().__init__()
        self.threshold, self.growth = threshold, growth

    def forward(self, output, targets):
        losses = (output - targets).square().mean(1)
        taken = losses.detach() < self.threshold
        self.threshold = self.threshold * self.growth if taken.float().mean() < 0.5 else 0.98 * self.threshold
        return (losses * torch.where(taken, 1.0, 0.1)).mean()


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = SelfPaced(threshold=2.0, growth=1.3)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = criterion(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(6, 8))
    trace.line(f"step {step}", loss=loss, threshold=criterion.threshold)

trace.final(model=model, optimizer=optimizer, threshold=criterion.threshold)

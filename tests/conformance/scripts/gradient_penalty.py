"""A critic with a gradient penalty: its loss holds the gradient of its output, so backward goes through it twice."""

# ranks: 3
# group: state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class PenalizedCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, real, fake):
        mixed = torch.lerp(real, fake, torch.rand(len(real), 1)).requires_grad_(True)
        (slope,) = torch.autograd.grad(self.net(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return self.net(fake).mean() - self.net(real).mean(), penalty


job = understudy.join()
torch.manual_seed(0)
critic = DistributedDataParallel(PenalizedCritic())
optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.0, 0.9))
data = TensorDataset(torch.randn(96, 6) + 1)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(critic=critic, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(real):
    optimizer.zero_grad()
    distance, penalty = critic(real, torch.randn_like(real))
    (distance + 10 * penalty).backward()
    optimizer.step()
    return distance.item(), penalty.item()


for (real,) in job.batches(loader, steps=12):
    distance, penalty = train_step(real)
    trace.line(f"step {job.committed}", distance=distance, penalty=penalty)

trace.final(critic=critic, optimizer=optimizer)

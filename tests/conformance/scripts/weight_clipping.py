"""Weights are clamped at the top of each step, as in the first Wasserstein GAN: parameters change in front of the vote."""

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

job = understudy.join()
torch.manual_seed(0)
critic = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1)))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
data = TensorDataset(torch.randn(96, 6) + 1)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(critic=critic, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(real):
    for parameter in critic.parameters():
        parameter.data.clamp_(-0.1, 0.1)
    optimizer.zero_grad()
    loss = critic(torch.randn_like(real)).mean() - critic(real).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for (real,) in job.batches(loader, steps=12):
    loss = train_step(real)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(critic=critic, optimizer=optimizer)
